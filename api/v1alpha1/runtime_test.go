package v1alpha1

import "testing"

// The handler of a class decides, and its name only where there is no such class.
func TestOwnKernels(t *testing.T) {
	for _, c := range []struct {
		class, handler string
		kernels        Kernels
		want           string
	}{
		{"kata", "", nil, `"kata"`},
		{"kata-qemu-nvidia-gpu", "", nil, `"kata-qemu-nvidia-gpu"`},
		{"my-kata-clh", "", nil, `"my-kata-clh"`},
		{"runsc-gpu", "", nil, `"runsc-gpu"`},
		{"secure", "", nil, ""},
		{"nvidia", "", nil, ""},
		{"", "", nil, ""},
		{"secure", "runsc", nil, `"secure" (handler runsc)`},
		{"secure", "kata-qemu", nil, `"secure" (handler kata-qemu)`},
		{"secure", "katamaran", nil, ""},
		{"gvisor", "nvidia", nil, ""},
		{"secure", "enclave", nil, ""},
		{"secure", "enclave", Kernels{"enclave"}, `"secure" (handler enclave)`},
		{"secure", "enclave-2", Kernels{"enclave-*"}, `"secure" (handler enclave-2)`},
		{"secure", "runsc", Kernels{"enclave"}, ""},
		{"enclave", "", Kernels{"enclave"}, `"enclave"`},
		{"secure", "runsc", Kernels{}, ""},
	} {
		if got := c.kernels.Own(&c.class, c.handler); got != c.want {
			t.Errorf("class %q, handler %q, among %q: %q, want %q", c.class, c.handler, c.kernels, got, c.want)
		}
	}
	if got := (Kernels)(nil).Own(nil, "runsc"); got != "" {
		t.Errorf("no class has a kernel of its own: %s", got)
	}
}

func TestHandlers(t *testing.T) {
	for handler, valid := range map[string]bool{"kata": true, "kata-*": true, "k*": true, "runsc2": true, "": false, "*": false, "Kata": false, "a b": false, "-a": false, "a-": false, "a*b": false} {
		if err := (Kernels{handler}).Validate(); (err == nil) != valid {
			t.Errorf("%q: %v", handler, err)
		}
	}
	if err := ownKernels.Validate(); err != nil {
		t.Error(err)
	}
}
