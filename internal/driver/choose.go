package driver

import "fmt"

// choose takes of both libraries those of one driver: of the release of the kernel module, or of one
// release where the kernel does not tell, or of no known one. NVIDIA's libraries refuse to work with
// a module or with each other otherwise. Of several such drivers it is the one that the linker
// would find.
func (d *Driver) choose(cuda, nvml *search) error {
	for _, c := range cuda.candidates {
		for _, n := range nvml.candidates {
			if d.alike(c.path, n.path) {
				d.Chosen[CUDA], d.Chosen[NVML] = c.path, n.path
				cuda.leave(c, d)
				nvml.leave(n, d)
				return nil
			}
		}
	}
	c, n := cuda.candidates[0].path, nvml.candidates[0].path
	if d.Module == "" {
		return fmt.Errorf("%w: %s and %s are of different releases; expected two of one: install one driver whole", ErrUnusable, c, n)
	}
	for _, path := range []string{c, n} {
		if release := Release(path); release != "" && release != d.Module {
			return fmt.Errorf("%w: %s is of release %s; expected %s, that of the kernel module that runs: restart the machine, or reload the module, after a driver's update",
				ErrUnusable, path, release, d.Module)
		}
	}
	return nil
}

// alike reports whether two libraries can be of the driver that runs.
func (d *Driver) alike(cuda, nvml string) bool {
	c, n := Release(cuda), Release(nvml)
	if c != "" && n != "" && c != n {
		return false
	}
	return d.Module == "" || (c == "" || c == d.Module) && (n == "" || n == d.Module)
}

// leave says of the other candidates that they are of another release, where they are.
func (s *search) leave(chosen candidate, d *Driver) {
	of := d.Release()
	for _, c := range s.candidates {
		if release := Release(c.path); release != "" && of != "" && release != of {
			s.aside = append(s.aside, &Fault{
				Path: c.path, Found: "a library of release " + release, Expected: of + ", which " + d.reason(chosen.path), Asked: c.asked, kind: errRelease,
			})
		}
	}
}

// reason is why a release is taken.
func (d *Driver) reason(chosen string) string {
	if d.Module != "" {
		return "the kernel module has"
	}
	return chosen + " has"
}
