package doctor

import (
	"os"
	"path/filepath"
	"strings"
)

// A way to a GPU's memory on which no call of CUDA lies, and the files that show that programs can go it.
type way struct {
	name     string
	patterns []string
}

// ways are those that the loaders of each interface read (Khronos' specifications of the loaders of
// OpenCL and Vulkan, and libglvnd's documentation of EGL's; GLX loads its library by name).
var ways = []way{
	{"OpenCL", []string{"/etc/OpenCL/vendors/*nvidia*.icd"}},
	{"Vulkan", []string{"/usr/share/vulkan/icd.d/*nvidia*.json", "/etc/vulkan/icd.d/*nvidia*.json"}},
	{"OpenGL", []string{
		"/usr/share/glvnd/egl_vendor.d/*nvidia*.json", "/etc/glvnd/egl_vendor.d/*nvidia*.json",
		"/usr/lib/*-linux-gnu/libGLX_nvidia.so.*", "/usr/lib64/libGLX_nvidia.so.*", "/usr/lib/libGLX_nvidia.so.*",
	}},
}

// migration is the parameter of NVIDIA's module by which host memory does not come to GPUs when they
// use it (MODULE_PARM_DESC of uvm_disable_hmm in the published sources, kernel-open/nvidia-uvm).
const migration = "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"

// unlimited tells by which ways programs can take GPU memory that no library of ours sees.
func (h Host) unlimited() []Check {
	var found []string
	for _, w := range ways {
		if file := h.first(w.patterns); file != "" {
			found = append(found, w.name+" ("+file+")")
		}
	}
	if text, err := os.ReadFile(filepath.Join(h.Root, migration)); err == nil && strings.TrimSpace(string(text)) == "N" {
		found = append(found, "host memory that moves to the GPU when it is used there ("+migration+" is N; where kernel and GPU can do it)")
	}
	if len(found) == 0 {
		return nil
	}
	return []Check{{ID: "driver.beside", Name: "memory beside CUDA", Status: OK, Found: strings.Join(found, ", ") +
		": no request of these is refused at a share's limit. The agent counts them by the driver's figures for each process"}}
}

// first returns a file that matches one of the patterns, without the root, or "".
func (h Host) first(patterns []string) string {
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(h.Root, pattern))
		if err == nil && len(files) > 0 {
			return "/" + strings.TrimPrefix(strings.TrimPrefix(files[0], filepath.Clean(h.Root)), "/")
		}
	}
	return ""
}
