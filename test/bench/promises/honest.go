package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/multiuser"
)

const falseID = "promise.false_reports"

// honestPrograms are started in shares, each as the user of its number; third-party
// programs that are not installed are said to be left out.
func honestPrograms() (all [][]string, missing []string) {
	bench := func(args ...string) { all = append(all, append([]string{"gpubench"}, args...)) }
	bench("hold", "--bytes", "1500Mi", "--seconds", "4")
	bench("storm", "--processes", "4", "--count", "300")
	for _, kind := range []string{"linear", "async", "managed", "pitch", "vmm", "array"} {
		bench("alloc", "--kind", kind, "--bytes", "64Mi", "--count", "16")
	}
	bench("rounds", "--different", "300", "--count", "2", "--ns", "1000000")
	bench("load", "--threads", "4", "--streams", "4", "--ns", "20000000", "--seconds", "4")
	bench("load", "--graph", "20", "--ns", "1000000", "--seconds", "4")
	bench("serve", "--rate", "50", "--kernels", "5", "--ns", "500000", "--seconds", "4")
	all = append(all, []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8; do gpubench spin --count 8 --ns 20000000; done"})
	all = append(all, []string{"sh", "-c", "for i in 1 2 3 4; do gpubench hold --bytes 1500Mi --seconds 1 </dev/null; done"})
	if path, err := exec.LookPath("ffmpeg"); err == nil {
		all = append(all, []string{
			path, "-nostdin", "-loglevel", "error", "-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu", "-f", "lavfi",
			"-i", "testsrc2=size=1280x720:rate=25:duration=2", "-vf", "format=yuv420p,hwupload_cuda,hwdownload,format=yuv420p", "-f", "null", "-",
		})
	} else {
		missing = append(missing, "ffmpeg")
	}
	python, err := filepath.Abs(".cache/third-party/python/bin")
	if err == nil {
		python, err = filepath.EvalSymlinks(python)
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(python, "nvitop"))
	}
	if err != nil {
		return all, append(missing, "nvitop", "nvidia-ml-py")
	}
	return append(all,
		[]string{filepath.Join(python, "python"), filepath.Join(python, "nvitop"), "-1"},
		[]string{filepath.Join(python, "python"), "-c", "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).used)"},
	), missing
}

// measureFalse runs honest programs in shares with a cap under the answer kill, and
// counts those that were reported or ended by a signal.
func measureFalse(ctx context.Context, o options) ([]measurement.Row, error) {
	var wrong []float64
	programs, missing := honestPrograms()
	for range o.runs() {
		n, err := accused(ctx, o, programs)
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, float64(n))
	}
	name := fmt.Sprintf("%d programs under kill", len(programs))
	if len(missing) > 0 {
		name += ", without " + strings.Join(missing, ", ")
	}
	return []measurement.Row{row(falseID, name, "count", 0, wrong)}, nil
}

// accused is how many of the programs were reported or did not end well. Six of them run
// at once, on a machine that loads the code of a kernel when it is first launched.
func accused(ctx context.Context, o options, programs [][]string) (n int, err error) {
	s, err := guarded(ctx, o, "kill", "--set", "costs.load=10ms")
	if err != nil {
		return 0, err
	}
	defer s.Close()
	ended := make(chan error)
	for user := range multiuser.Users {
		go func() {
			var faults []error
			for i := user; i < len(programs); i += multiuser.Users {
				args := append([]string{"divvy", "run", "--memory", "2Gi", "--cores", "30", "--name", fmt.Sprint("p", i), "--"}, programs[i]...)
				name := fmt.Sprint("u", user+1)
				if filepath.Base(programs[i][0]) == "python" {
					name = "root" // users may not reach the folder of this one
				}
				if text, err := s.Command(ctx, name, args...).CombinedOutput(); err != nil {
					faults = append(faults, fmt.Errorf("%s: %w: %s", strings.Join(programs[i], " "), err, text))
				}
			}
			ended <- errors.Join(faults...)
		}()
	}
	for range multiuser.Users {
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, err)
			n++
		}
	}
	list, err := s.List(ctx)
	if err != nil {
		return n, err
	}
	for _, e := range list.Events {
		if e.Kind == control.EventExcess || e.Kind == control.EventMisuse || e.Kind == control.EventOutside {
			fmt.Fprintf(os.Stderr, "%s: %s: %s\n", e.Kind, e.Tenant, e.Text)
			n++
		}
	}
	return n, nil
}
