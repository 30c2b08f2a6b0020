package v1alpha1

import "testing"

func TestOwnKernel(t *testing.T) {
	for name, want := range map[string]bool{
		"kata": true, "kata-qemu-nvidia-gpu": true, "my-kata-clh": true, "gvisor": true, "runsc-gpu": true, "Firecracker": true,
		"nvidia": false, "runc": false, "crun": false, "": false,
	} {
		if OwnKernel(&name) != want {
			t.Errorf("%q: own kernel %v", name, !want)
		}
	}
	if OwnKernel(nil) {
		t.Error("no class has a kernel of its own")
	}
}
