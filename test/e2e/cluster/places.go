package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/install"
)

// places are the files that a cluster is made from.
type places struct {
	root       string // of the repository
	run        string // where clusters' directories are made
	components string // folder of one Kubernetes version
	containerd string // folder
	helm       string
	prefix     string // where Divvy was built
	pause      string // image archive
}

func (p places) component(name string) string { return filepath.Join(p.components, name) }

// find locates those of a version of Kubernetes and a line of containerd, which may be empty. DIVVY_PREFIX names another build of
// Divvy than build/.
func find(version, containerd string) (places, error) {
	root, err := Repository()
	if err != nil {
		return places{}, err
	}
	prefix, err := built(root)
	if err != nil {
		return places{}, err
	}
	cache := filepath.Join(root, ".cache", "e2e")
	p := places{
		root:       root,
		run:        filepath.Join(cache, "run"),
		components: filepath.Join(cache, "kubernetes-"+version),
		containerd: filepath.Join(cache, "containerd"+strings.ReplaceAll(containerd, ".", "")),
		helm:       filepath.Join(cache, "helm", "helm"),
		prefix:     prefix,
		pause:      filepath.Join(prefix, "images", "pause.tar"),
	}
	var missing []string
	for _, file := range []string{
		p.component("kubelet"), filepath.Join(p.containerd, "containerd"), p.pause, filepath.Join(p.prefix, "bin", "divvy"),
		"/usr/lib/cni/bridge",
	} {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, file)
		}
	}
	for _, program := range []string{"runc", "ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return places{}, fmt.Errorf("run `make e2e-deps images` first: there is no %s", strings.Join(missing, ", no "))
	}
	return p, nil
}

// built is where Divvy was built.
func built(root string) (string, error) {
	if prefix := os.Getenv(install.Variable); prefix != "" {
		return filepath.Abs(prefix)
	}
	return filepath.Join(root, "build"), nil
}

// Image is the archive of an image that `make images` writes: divvy, gpubench.
func Image(name string) (string, error) {
	return Built(filepath.Join("images", name+".tar"))
}

// Built is the path of a file of the build.
func Built(name string) (string, error) {
	root, err := Repository()
	if err != nil {
		return "", err
	}
	prefix, err := built(root)
	return filepath.Join(prefix, name), err
}

// Repository is the root of the module that this package belongs to, wherever
// in it the test runs.
func Repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		text, readErr := os.ReadFile(filepath.Join(dir, "go.mod"))
		if readErr == nil && bytes.HasPrefix(text, []byte("module github.com/divvy-gpu/divvy\n")) {
			return dir, nil
		}
		if dir == "/" {
			err = errors.New("run it from within Divvy's source tree")
		}
		dir = filepath.Dir(dir)
	}
	return "", fmt.Errorf("find source tree: %w", err)
}
