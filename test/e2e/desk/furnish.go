package desk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// simulated has what the chart installs look for a simulated machine in the place of NVIDIA's driver: the value in the
// chart, and what the value changes in the plain manifests. Nodes of the tests have no GPU.
var simulated = map[string][]string{
	"deploy/chart/values.yaml": {
		"    dir: \"\"\n", "    dir: %s\n",
	},
	"deploy/manifests/divvy.yaml": {
		"--driver-root=/host\n", "--simgpu-dir=%s\n",
		"{name: host, mountPath: /host, readOnly: true, mountPropagation: HostToContainer}", "{name: simgpu, mountPath: %s}",
		"{name: host, hostPath: {path: /, type: Directory}}", "{name: simgpu, hostPath: {path: %s, type: Directory}}",
	},
}

// ErrFurnish is the error of files that are not as the desk expects them.
var ErrFurnish = errors.New("what a simulated machine would replace is not found once")

// ErrPlugin is the error of a tree without the program.
var ErrPlugin = errors.New("divvy is not built")

// furnish makes the folder in which commands run: the repository's files that pages name, of which the chart's know that
// the GPUs are simulated ones of the machine.
func furnish(dir, root, machine string) error {
	if err := os.Symlink(filepath.Join(root, "docs"), filepath.Join(dir, "docs")); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		return fmt.Errorf("copy the chart: %w", err)
	}
	for name, pairs := range simulated {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for i := 0; i < len(pairs); i += 2 {
			if strings.Count(string(text), pairs[i]) != 1 {
				return fmt.Errorf("%w: %q in %s", ErrFurnish, pairs[i], name)
			}
			text = []byte(strings.Replace(string(text), pairs[i], fmt.Sprintf(pairs[i+1], machine), 1))
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// plugin makes kubectl's plugin of one of the folders' divvy, as the package installs it.
func plugin(dir string, folders []string) error {
	for _, folder := range folders {
		program := filepath.Join(folder, "divvy")
		if _, err := os.Stat(program); err == nil {
			return errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o700), os.Symlink(program, filepath.Join(dir, "bin", "kubectl-divvy")))
		}
	}
	return ErrPlugin
}
