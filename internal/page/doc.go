// Package page is the agent's side of a tenant's shared pages: config, which
// the agent writes and the tenant maps read-only, and state, which the tenant
// writes. Their layout is generated from abi/pages.yaml for both sides.
//
// A state page is read with pread(2) and never mapped: a tenant that cuts its
// page short would end the agent with SIGBUS. Nothing in it is trusted: it
// is shown, compared with what the driver says, and who lives is taken from
// the kernel's locks.
package page
