// Package vm boots a machine of its own to break: QEMU with an emulated IOMMU, PCI functions with virtual functions, and
// a stand-in for a vendor's host driver. It never uses KVM, so that it behaves alike on every machine. hack/vm-kit.sh
// unpacks what it needs, and `go test -exec` runs a package's tests inside: see docs/design/guest.md.
package vm
