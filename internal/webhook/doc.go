// Package webhook is the server around the translation of package dialect: it answers the API server's admission
// reviews of pods, claims and templates over HTTPS, makes the templates that a translated pod needs before it answers,
// holds quotas, and looks after its certificates.
//
// It has no rules of its own about requests. What it knows of the cluster it reads from caches that may be behind, so
// that quotas are held as well as that allows; templates are made and read at the API server itself. A review is
// answered within the time that the API server gives it, ten seconds where it says nothing.
package webhook
