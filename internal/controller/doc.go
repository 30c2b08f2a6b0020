// Package controller does for a cluster what no node can: it collects claim templates that no pod uses any more, and
// says on pods that wait for a GPU why none of them fits, because the scheduler only says that it cannot allocate all
// claims. One replica does so at a time; the others wait for its lease.
//
// It decides nothing about shares. Its view of the cluster comes from caches, and may be behind: what it deletes is
// deleted only in the version that it saw. What it says is said once for every change, and again from time to time.
package controller
