// Package hosts boots hosts with one fault each and judges what preflight says of them: the guest has the fault, and the
// judge knows which. A guest is judged as the hosts of internal/vm/vmtest that have its shape.
package hosts
