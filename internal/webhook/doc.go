// Package webhook is the server around the translation of package dialect: it answers the API server's admission
// reviews of pods, claims, templates and queues over HTTPS, holds quotas, and looks after its certificates.
//
// It has no rules of its own about requests, and a review writes nothing to the cluster. It reads the cluster from
// caches that may be behind, so quotas can be exceeded by what the caches do not show yet. A review is answered within
// the time that the API server names, or within ten seconds.
package webhook
