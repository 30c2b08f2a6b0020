package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// longest bounds everything that is waited for, on a busy machine.
const longest = time.Minute

// containerd is a containerd alone in namespaces of its own, which end with it.
type containerd struct {
	t   *testing.T
	dir string
	cri.RuntimeServiceClient
	log   string
	group string
}

// version is one of the lines of containerd.
type version struct {
	// folder is where its programs are below .cache/e2e.
	folder string
	config string
}

// versions by name.
var versions = map[string]version{
	"1.7": {"containerd17", `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[1]s"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "%[2]s"
`},
	"2": {"containerd", `version = 3
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "%[1]s"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "%[2]s"
`},
}

// each runs a test with every version.
func each(t *testing.T, test func(t *testing.T, v version)) {
	for name, v := range versions {
		t.Run(name, func(t *testing.T) { test(t, v) })
	}
}

const (
	nriOn = `
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "%s/nri.sock"
  plugin_path = "%[1]s/plugins"
  plugin_config_path = "%[1]s/conf.d"
`
	nriOff = `
[plugins."io.containerd.nri.v1.nri"]
  disable = true
`
)

// start starts a containerd with the image of the tests.
func start(t *testing.T, v version, nri bool) *containerd {
	t.Helper()
	if os.Getuid() != 0 {
		installtest.Missing(t, "runtimes", errors.New("only root runs containerd"))
	}
	programs, err := filepath.EvalSymlinks(filepath.Join(installtest.Root(t), ".cache/e2e", v.folder))
	if err != nil {
		installtest.Missing(t, "runtimes", fmt.Errorf("%w: `make test-runtimes` builds it", err))
	}
	low, err := exec.LookPath("runc")
	if named := os.Getenv("DIVVY_RUNC"); named != "" {
		low, err = named, nil
	}
	if err != nil {
		installtest.Missing(t, "runtimes", err)
	}
	dir, err := os.MkdirTemp("", "divvy-rt") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	text := fmt.Sprintf(v.config, imageName, low)
	text = strings.Replace(text, "\n", fmt.Sprintf("\nroot = %q\nstate = %q\n[grpc]\n  address = %q\n", dir+"/root", dir+"/state", dir+"/c.sock"), 1)
	if nri {
		text += fmt.Sprintf(nriOn, dir)
	} else {
		text += nriOff
	}
	if err := os.WriteFile(dir+"/config.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &containerd{t: t, dir: dir, log: dir + "/log", group: fmt.Sprintf("/divvy-runtimes-%d", os.Getpid())}
	c.run(programs)
	conn, err := grpc.NewClient("unix://"+dir+"/c.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.RuntimeServiceClient = cri.NewRuntimeServiceClient(conn)
	c.until("it is ready", func(ctx context.Context) error {
		_, err := c.Version(ctx, &cri.VersionRequest{})
		return err
	})
	archive, err := os.Open(image(t))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	load := exec.CommandContext(t.Context(), filepath.Join(programs, "ctr"), "--address", dir+"/c.sock", "--namespace=k8s.io", "images", "import", "-")
	load.Stdin = io.Reader(archive)
	if said, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load the image: %v: %s", err, said)
	}
	images := cri.NewImageServiceClient(conn)
	c.until("it knows the image", func(ctx context.Context) error {
		found, err := images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: imageName}})
		if err == nil && found.GetImage() == nil {
			err = errors.New("it does not")
		}
		return err
	})
	return c
}

// run starts the program. It is the first process of its pid namespace, so that all ends
// with it; /run is its own, because shims have their sockets there.
func (c *containerd) run(programs string) {
	c.t.Helper()
	log, err := os.Create(c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--propagation=private",
		"sh", "-c", `mount -t tmpfs tmpfs /run && exec "$0" --config "$1"`, filepath.Join(programs, "containerd"), c.dir+"/config.toml")
	cmd.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		c.removeCgroups()
		if c.t.Failed() {
			text, _ := os.ReadFile(c.log)
			c.t.Logf("containerd:\n%s", text[max(0, len(text)-8000):])
		}
	})
}

// removeCgroups removes what containers leave, once their processes have ended.
func (c *containerd) removeCgroups() {
	c.until("the containers' cgroups are gone", func(context.Context) error {
		var left error
		for _, pattern := range []string{"/sys/fs/cgroup" + c.group, "/sys/fs/cgroup/*" + c.group} {
			found, _ := filepath.Glob(pattern)
			for _, top := range found {
				entries, _ := os.ReadDir(top)
				for _, e := range entries {
					if e.IsDir() {
						_ = os.Remove(filepath.Join(top, e.Name()))
					}
				}
				if err := os.Remove(top); err != nil && !errors.Is(err, os.ErrNotExist) {
					left = err
				}
			}
		}
		return left
	})
}

// until looks until a condition holds.
func (c *containerd) until(what string, condition func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longest) // cleanups wait too
	defer cancel()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("wait until %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pod makes a sandbox in the network of the node.
func (c *containerd) pod(name string, notes map[string]string) *sandbox {
	c.t.Helper()
	s := &sandbox{containerd: c, config: &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: name, Namespace: "lab", Uid: "uid-" + name},
		Annotations: notes, LogDirectory: c.dir,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: c.group, SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE},
		}},
	}}
	made, err := c.RunPodSandbox(c.t.Context(), &cri.RunPodSandboxRequest{Config: s.config})
	if err != nil {
		c.t.Fatal(err)
	}
	s.id = made.GetPodSandboxId()
	return s
}

type sandbox struct {
	*containerd
	id     string
	config *cri.PodSandboxConfig
}

// create makes a container whose program looks for paths.
func (s *sandbox) create(name string, notes map[string]string, mounts []*cri.Mount, paths ...string) (string, error) {
	made, err := s.CreateContainer(s.t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: s.id, SandboxConfig: s.config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: imageName},
			Args: paths, Annotations: notes, Mounts: mounts, LogPath: name + ".log",
			Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE},
			}},
		},
	})
	return made.GetContainerId(), err
}

// start starts a container.
func (s *sandbox) start(id string) error {
	_, err := s.StartContainer(s.t.Context(), &cri.StartContainerRequest{ContainerId: id})
	return err
}

// ended waits for the end of a container and returns how it ended.
func (s *sandbox) ended(id string) int {
	s.t.Helper()
	code := -1
	s.until("the container ends", func(ctx context.Context) error {
		found, err := s.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return err
		}
		if found.GetStatus().GetState() != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("it is %v", found.GetStatus().GetState())
		}
		code = int(found.GetStatus().GetExitCode())
		return nil
	})
	return code
}
