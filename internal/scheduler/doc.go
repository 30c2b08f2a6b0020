// Package scheduler is the engine of Divvy's scheduler: it follows a cluster by events, plans pods and gangs on the
// ledger, and says why a pod waits. It knows none of the types inside Kubernetes' scheduler.
package scheduler
