// Package page is the agent's side of a tenant's shared pages: config, which
// the agent writes and the tenant maps read-only, and state, which the tenant
// writes. Their layout is generated from abi/pages.yaml for both sides.
//
// A state page is read with pread(2), but for what is read all the time: a mapping of
// a page that its tenant truncates faults, which is turned into an error here. Nothing
// in it is trusted:
// the agent compares its figures with the driver's, and learns from the kernel's
// locks which processes live.
package page
