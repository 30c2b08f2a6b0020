// Package claims tests in the guest that a virtual machine gets a device by `divvy vm claim`, and gives it back.
package claims
