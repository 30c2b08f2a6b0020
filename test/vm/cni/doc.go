// Package cni attaches network namespaces in the guest to cards as a container runtime does, by plugins of CNI that are built
// from their Go modules and run by its library.
package cni
