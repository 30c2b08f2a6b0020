// Package controller does for a cluster what no node can do. It makes the claim templates that admitted pods
// carry, and deletes those that no pod uses any more. On
// pods that wait for a GPU it writes an event that says why no GPU fits, because the scheduler only says that it cannot
// allocate all claims. One replica works at a time; the others wait for its lease.
//
// It decides nothing about shares. Its caches of the cluster may be behind, so it deletes a template only in the
// version that it saw. It writes an event once for every change of the reason, and again from time to time.
package controller
