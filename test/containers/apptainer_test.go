package containers

import (
	"strings"
	"testing"
)

// Apptainer's containers are in the share of the command that starts them: for a user and for root, with the limit, and with
// Divvy's library. Without its option for NVIDIA they have no driver, and where they have a /dev of their own they get no GPU.
func TestApptainer(t *testing.T) {
	programs := unpacked(t, "apptainer")
	m := open(t, "apptainer")
	m.start("image.sh")
	m.start("apptainer.sh", programs+"/debian")
	m.serve()
	// A simulated GPU's driver keeps its state in files, as no real one does.
	const simulated = " --bind /run/divvy "
	for _, user := range []string{"u1", "root"} {
		for _, c := range []struct{ options, program, want string }{
			{"--nv" + simulated, "gpubench info", `"total_bytes":8589934592`},
			{"--nv" + simulated, "gpubench alloc --bytes 1Gi --count 9", `"result":"CUDA_ERROR_OUT_OF_MEMORY"`},
			{"", "gpubench info", "libcuda.so.1: cannot open shared object file"},
			{"--nv --contain" + simulated, "gpubench info", "libcuda-real.so.1: cannot open shared object file"},
		} {
			args := strings.Fields("divvy run --memory 8Gi -- apptainer exec " + c.options + " /opt/bench " + c.program)
			if out, err := m.Command(t.Context(), user, args...).CombinedOutput(); !strings.Contains(string(out), c.want) {
				t.Errorf("%s as %s prints %s(%v), want %s", strings.Join(args, " "), user, out, err, c.want)
			}
		}
	}
}
