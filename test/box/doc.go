// Package box holds shares in containers as a runtime makes them: bundles made
// by hand, edited as CDI says, run by runc with namespaces of their own on a
// simulated machine. Its oracle judges.
package box
