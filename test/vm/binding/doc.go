// Package binding gives the guest's devices to virtual machines and takes them back, as an agent does that is killed, that
// somebody keeps waiting, or that is in a hurry.
package binding
