package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func toolCases() []testCase {
	n := needs{share: true}
	return []testCase{
		{name: "sanitizer", asks: "Does compute-sanitizer find nothing in a share that it does not find natively?", needs: n,
			expected: "0 errors both times", means: "calls that Divvy inserts fail, or touch memory that they should not",
			limit: 2 * time.Minute, run: sanitizer},
		{name: "nsys", asks: "Does nsys profile a program in a share as it does natively?", needs: n,
			expected: "a profile with the same kernels; Divvy's own calls can be told apart by their name",
			means:    "who profiles a program in a share sees other work than the program's", limit: 3 * time.Minute, run: nsys},
		{name: "gdb", asks: "Does cuda-gdb run a program in a share?", needs: n,
			expected: "the program ends normally, as natively", means: "programs in a share cannot be debugged", limit: 2 * time.Minute, run: gdb},
	}
}

// toolkits are where NVIDIA's tools lie when they are not in $PATH, the newest first.
func toolkits() (folders []string) {
	for _, pattern := range []string{"/usr/local/cuda*/bin", "/opt/cuda/bin", "/opt/nvidia/nsight-systems/*/bin", "/opt/nvidia/nsight-systems-cli/*/bin", "/usr/local/cuda*/compute-sanitizer"} {
		found, _ := filepath.Glob(pattern)
		slices.Sort(found)
		slices.Reverse(found)
		folders = append(folders, found...)
	}
	return folders
}

// tool finds one of NVIDIA's tools, or skips the case.
func tool(name string) (string, error) {
	if path := findProgram(name, toolkits()...); path != "" {
		return path, nil
	}
	return "", skip("%s is not here", name)
}

// around runs a program in a tool, natively and in a share. A tool that does not work natively is no question to Divvy.
func (t *trial) around(share place, command ...string) (native, inside output, err error) {
	if native, err = t.call(t.natively(), command...); err != nil {
		return native, inside, err
	}
	if native.status != 0 {
		return native, inside, skip("%s does not work natively: %s", filepath.Base(command[0]), native.say())
	}
	inside, err = t.call(share, command...)
	return native, inside, err
}

var summaryOfErrors = regexp.MustCompile(`ERROR SUMMARY: (\d+) error`)

func errorsFound(o output) string {
	if match := summaryOfErrors.FindStringSubmatch(o.out + o.err); match != nil {
		return match[1]
	}
	return "no summary"
}

func sanitizer(t *trial) error {
	program, err := tool("compute-sanitizer")
	if err != nil {
		return err
	}
	words := []string{program, "--tool", "memcheck", "--report-api-errors", "all", t.gpubench(), "spin", "--count", "50", "--ns", "100000"}
	native, share, err := t.around(t.capped(100), words...)
	if err != nil {
		return err
	}
	t.compare("errors", errorsFound(native), errorsFound(share))
	if errorsFound(native) != errorsFound(share) || share.status != 0 {
		return differ("in a share: %s errors, %s", errorsFound(share), share.say())
	}
	return nil
}

// nsys writes its profile to the temporary folder and counts what is in it.
func nsys(t *trial) error {
	program, err := tool("nsys")
	if err != nil {
		return err
	}
	share := t.capped(100)
	var kernels [2]string
	for i, at := range []place{t.natively(), share} {
		file := filepath.Join(t.scratch, fmt.Sprintf("profile%d", i))
		o, err := t.call(at, program, "profile", "--trace", "cuda", "--sample", "none", "--cpuctxsw", "none", "--stats", "false",
			"--force-overwrite", "true", "--output", file, t.gpubench(), "spin", "--count", "50", "--ns", "100000")
		if err != nil {
			return err
		}
		switch _, missing := os.Stat(file + ".nsys-rep"); {
		case i == 0 && (o.status != 0 || missing != nil):
			return skip("nsys does not work natively: %s", o.say())
		case o.status != 0 || missing != nil:
			return differ("in a share: %s", o.say())
		}
		if o, err = t.call(nil, program, "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "--force-export", "true", file+".nsys-rep"); err != nil {
			return err
		}
		kernels[i] = instances(o.out)
	}
	if kernels[0] == "" {
		return errors.New("read a profile: it names no kernel")
	}
	t.compare("kernels: instances and names", kernels[0], kernels[1])
	if kernels[0] != kernels[1] {
		return differ("natively %q, in a share %q", kernels[0], kernels[1])
	}
	return nil
}

// instances reads how often each kernel ran from a table in CSV, whose columns differ from version to version.
func instances(table string) string {
	var found []string
	instance, name := -1, -1
	for line := range strings.SplitSeq(table, "\n") {
		columns := strings.Split(strings.TrimSpace(line), ",")
		if at := slices.Index(columns, "Instances"); at >= 0 {
			instance, name = at, slices.Index(columns, "Name")
			continue
		}
		if instance < 0 || name < 0 || len(columns) <= max(instance, name) {
			continue
		}
		if _, err := strconv.Atoi(columns[instance]); err == nil {
			found = append(found, columns[instance]+" "+columns[name])
		}
	}
	return strings.Join(found, "; ")
}

func gdb(t *trial) error {
	program, err := tool("cuda-gdb")
	if err != nil {
		return err
	}
	words := []string{program, "-nx", "-batch", "-ex", "run", "-ex", "info locals", "--args", t.gpubench(), "spin", "--count", "5", "--ns", "100000"}
	native, share, err := t.around(t.capped(100), words...)
	if err != nil {
		return err
	}
	const normal = "exited normally"
	if !strings.Contains(native.out, normal) {
		return skip("cuda-gdb does not work natively: %s", native.say())
	}
	if !strings.Contains(share.out, normal) {
		return differ("in a share: %s", share.say())
	}
	return nil
}
