// Package box tests shares in containers: it writes bundles by hand, edits them
// by CDI and has runc run them in their own namespaces on a simulated machine.
// The simulator's own record (the oracle) judges the results.
package box
