// Package suite tests the guest itself: that the machine, the stand-in for a vendor's host driver, the VM within and the
// soft network cards are what other tests take them for.
package suite
