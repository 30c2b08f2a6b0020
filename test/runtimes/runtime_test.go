package runtimes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
const longest = 3 * time.Minute

// machine has a container runtime alone in namespaces of its own, which end with it.
type machine struct {
	t    *testing.T
	kind kind
	dir  string
	cri.RuntimeServiceClient
	images   cri.ImageServiceClient
	programs string // of the runtime
	low      string // what it makes containers with
	log      string
	group    string
	first    *exec.Cmd // its first process, which runs the runtime, and again when that ends
}

// kind is a container runtime of some version.
type kind struct {
	// feature is what DIVVY_REQUIRE calls it.
	feature string
	// folder is where its programs are below .cache/e2e, and low what it makes containers with.
	folder, low string
	// configure writes its configuration and returns the command that runs it.
	configure func(m *machine, nri bool) []string
	// load gives it an image.
	load func(m *machine, archive string)
	// mountsFirst is whether a container's mounts are made when it is made; else they are when it starts.
	mountsFirst bool
	// devices is whether it takes CDI devices from the kubelet without being told to.
	devices bool
}

// kinds by name.
var kinds = map[string]kind{
	"containerd 1.7": {feature: "runtimes", folder: "containerd17", low: "runc", configure: configureContainerd17, load: loadContainerd},
	"containerd 2":   {feature: "runtimes", folder: "containerd", low: "runc", configure: configureContainerd2, load: loadContainerd, devices: true},
	"CRI-O, runc":    {feature: "cri-o", folder: "crio", low: "runc", configure: configureCRIO, load: loadCRIO, mountsFirst: true, devices: true},
	"CRI-O, crun":    {feature: "cri-o", folder: "crio", low: "crun", configure: configureCRIO, load: loadCRIO, mountsFirst: true, devices: true},
}

// each runs a test with every runtime.
func each(t *testing.T, test func(t *testing.T, k kind)) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) { test(t, k) })
	}
}

// start starts a runtime with the image of the tests.
func start(t *testing.T, k kind, nri bool) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		installtest.Missing(t, k.feature, errors.New("only root runs container runtimes"))
	}
	programs, err := filepath.EvalSymlinks(filepath.Join(installtest.Root(t), ".cache/e2e", k.folder))
	if err != nil {
		installtest.Missing(t, k.feature, fmt.Errorf("%w: `make test-runtimes` builds it", err))
	}
	low, err := exec.LookPath(k.low)
	if named := os.Getenv("DIVVY_RUNC"); named != "" && k.low == "runc" {
		low, err = named, nil
	}
	if err != nil {
		installtest.Missing(t, k.feature, err)
	}
	dir, err := os.MkdirTemp("", "divvy-rt") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &machine{
		t: t, kind: k, dir: dir, programs: programs, low: low, log: dir + "/log",
		group: fmt.Sprintf("/divvy-runtimes-%d", os.Getpid()),
	}
	m.run(k.configure(m, nri))
	conn, err := grpc.NewClient("unix://"+dir+"/c.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m.RuntimeServiceClient, m.images = cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	m.ready()
	k.load(m, image(t))
	m.until("it knows the image", func(ctx context.Context) error {
		found, err := m.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: imageName}})
		if err == nil && found.GetImage() == nil {
			err = errors.New("it does not")
		}
		return err
	})
	return m
}

func (m *machine) ready() {
	m.t.Helper()
	m.until("it is ready", func(ctx context.Context) error {
		_, err := m.Version(ctx, &cri.VersionRequest{})
		return err
	})
}

// write writes a file of the runtime's, and returns its path.
func (m *machine) write(name, text string) string {
	m.t.Helper()
	file := filepath.Join(m.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		m.t.Fatal(err)
	}
	return file
}

// run starts the runtime, and again whenever it ends. The shell is the first process of its
// pid namespace, so that all ends with it; /run is its own, because sockets and namespaces are there. Beside cgroups of version 1
// it sees none of version 2, with which crun makes nothing.
func (m *machine) run(command []string) {
	m.t.Helper()
	log, err := os.Create(m.log)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	m.first = exec.Command("unshare", append([]string{
		"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--propagation=private",
		"sh", "-c", `mount -t tmpfs tmpfs /run && { [ ! -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified; } && while :; do "$0" "$@"; done`,
	}, command...)...)
	m.first.Env = []string{"PATH=" + m.programs + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	m.first.Dir, m.first.Stdout, m.first.Stderr = "/", log, log
	m.first.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := m.first.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = m.first.Process.Kill()
		_ = m.first.Wait()
		m.removeCgroups()
		if m.t.Failed() {
			text, _ := os.ReadFile(m.log)
			m.t.Logf("the runtime:\n%s", text[max(0, len(text)-8000):])
		}
	})
}

// restart kills the runtime and waits for its next process.
func (m *machine) restart() {
	m.t.Helper()
	shell := m.child(m.first.Process.Pid)
	was := m.child(shell)
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		m.t.Fatal(err)
	}
	m.until("the runtime is another process", func(context.Context) error {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", was)); err == nil {
			return errors.New("it is the same")
		}
		return nil
	})
	m.ready()
}

// child is the first process that a process has started.
func (m *machine) child(of int) int {
	m.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", of))
	if err != nil {
		m.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), " ")
	id, err := strconv.Atoi(first)
	if err != nil {
		m.t.Fatalf("process %d has no child: %v", of, err)
	}
	return id
}

// removeCgroups removes what containers leave, once their processes have ended.
func (m *machine) removeCgroups() {
	m.until("the containers' cgroups are gone", func(context.Context) error {
		var left error
		for _, pattern := range []string{"/sys/fs/cgroup" + m.group, "/sys/fs/cgroup/*" + m.group} {
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
func (m *machine) until(what string, condition func(context.Context) error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longest) // cleanups wait too
	defer cancel()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			m.t.Fatalf("wait until %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
