package driver

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/ldcache"
)

// layout is how a system lays out its driver, and what is found of it.
type layout struct {
	name string
	// folder has the driver's files.
	folder string
	make   func(h host)
	// root is where the agent is told that the machine's files are, below the host's root.
	root string
	// none is true where no driver is found, and says what is said then.
	none bool
	says string
	// bare is true where the files' names tell no release, so that a container's need is not known.
	bare bool
}

const current = "550.54.15"

// whole puts a driver's libraries into a folder.
func (h host) whole(folder string) {
	h.sound(folder, current)
	h.object(filepath.Join(folder, "libnvidia-ptxjitcompiler.so."+current), "libnvidia-ptxjitcompiler.so.1")
}

// cached has the loader's cache lead to both libraries in a folder.
func (h host) cached(folder string) {
	var entries []ldcache.Entry
	for _, library := range Libraries {
		entries = append(entries, ldcache.Entry{Name: string(library), Path: "/" + filepath.Join(folder, string(library))})
	}
	h.cache(entries...)
}

// linked makes links to both libraries of a folder in another one.
func (h host) linked(folder, in string) {
	for _, library := range Libraries {
		h.write(filepath.Join(in, "x"), "")
		h.link("/"+filepath.Join(folder, string(library)), filepath.Join(in, string(library)))
	}
}

// older leaves files of an older driver, as an image that was saved from a container has.
func (h host) older(folder string) {
	for _, library := range Libraries {
		h.write(filepath.Join(folder, library.Bare()+".470.256.02"), "")
	}
}

const debian = "usr/lib/x86_64-linux-gnu"

var layouts = []layout{
	{name: "Ubuntu 24.04", folder: debian},
	{name: "Ubuntu 16.04", folder: "usr/lib/nvidia-550"},
	{name: "Debian 12", folder: debian + "/nvidia/current", make: func(h host) {
		for _, library := range Libraries {
			h.write("etc/x", "")
			h.link("/"+debian+"/nvidia/current/"+string(library), filepath.Join("etc", "alternative-"+string(library)))
			h.link("/etc/alternative-"+string(library), filepath.Join(debian, string(library)))
		}
	}},
	{name: "Debian with two drivers", folder: debian + "/nvidia/current", make: func(h host) {
		h.sound(debian+"/nvidia/tesla-470", "470.256.02")
		h.linked(debian+"/nvidia/tesla-470", debian) // the alternative is the other one
		h.loaded(current)
	}},
	{name: "RHEL, Fedora, SUSE, Amazon Linux", folder: "usr/lib64"},
	{name: "Arch, Photon, Bottlerocket since 2026", folder: "usr/lib"},
	{name: "an installer's own folder", folder: "opt/nvidia-driver/lib", make: func(h host) { h.cached("opt/nvidia-driver/lib") }},
	{name: "NixOS", folder: "nix/store/1x-nvidia-x11/lib", make: func(h host) { h.linked("nix/store/1x-nvidia-x11/lib", "run/opengl-driver/lib") }},
	{name: "Guix", folder: "gnu/store/1x-nvidia/lib", make: func(h host) { h.linked("gnu/store/1x-nvidia/lib", "run/current-system/profile/lib") }},
	{name: "WSL", folder: "usr/lib/wsl/lib", bare: true, make: func(h host) {
		cuda := h.object("usr/lib/wsl/lib/libcuda.so.1.1", "libcuda.so.1")
		h.object("usr/lib/wsl/lib/libnvidia-ml.so.1", "libnvidia-ml.so.1")
		h.link(filepath.Base(cuda), "usr/lib/wsl/lib/libcuda.so.1")
	}},
	{name: "GPU operator, seen from the host", folder: "run/nvidia/driver/usr/lib/x86_64-linux-gnu"},
	{name: "GPU operator on RHEL", folder: "run/nvidia/driver/usr/lib64"},
	{name: "GPU operator as the agent's root", folder: "run/nvidia/driver/" + debian, root: "run/nvidia/driver"},
	{name: "Flatcar", folder: "opt/nvidia/current/usr/lib64"},
	{name: "Bottlerocket until 2026", folder: "usr/lib/nvidia/tesla"},
	{name: "Bottlerocket's other root", folder: "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla"},
	{name: "Container-Optimized OS on GKE", folder: "home/kubernetes/bin/nvidia/lib64"},
	{name: "Container-Optimized OS", folder: "var/lib/nvidia/lib64"},
	{name: "Talos", folder: "usr/local/glibc/usr/lib"},
	{name: "a container on GKE", folder: "usr/local/nvidia/lib64"},
	{name: "a container whose image was saved from another", folder: debian, make: func(h host) { h.older(debian) }},
	{name: "Apptainer", folder: ".singularity.d/libs", make: func(h host) { h.cached(".singularity.d/libs") }},

	{name: "Alpine, and any machine without a driver", none: true, says: " in /etc/ld.so.cache or the usual folders: install the driver"},
	{name: "Jetson without NVML", none: true, says: "no libnvidia-ml.so.1", make: func(h host) {
		h.object("usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1.1", "libcuda.so.1")
	}},
	{name: "a build machine with the toolkit alone", none: true, says: "stubs/libcuda.so is a stub", make: func(h host) {
		h.compile(stub, "usr/local/cuda-12.4/lib64/stubs/libcuda.so", "libcuda.so.1")
		h.link("../local/cuda-12.4/lib64/stubs/libcuda.so", "usr/lib64/libcuda.so.1")
	}},
}

func TestLayouts(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			h := newHost(t)
			h.write("usr/lib64/x", "")
			if l.folder != "" && !l.bare {
				h.whole(l.folder)
			}
			if l.make != nil {
				l.make(h)
			}
			finder := Finder{Root: filepath.Join(h.root, l.root)}
			d, err := finder.Find()
			if l.none {
				if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), l.says) || !strings.Contains(err.Error(), h.root) {
					t.Errorf("%+v, %v; want %q", d, err, l.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, library := range Libraries {
				if got := filepath.Dir(d.Chosen[library]); got != filepath.Join(h.root, l.folder) {
					t.Errorf("%s is found in %s", library, got)
				}
			}
			if l.bare {
				return
			}
			files, err := finder.Files(d, current)
			if err != nil {
				t.Fatal(err)
			}
			compiler, err := filepath.Rel(filepath.Join(h.root, l.root), filepath.Join(h.root, l.folder, "libnvidia-ptxjitcompiler.so."+current))
			if err != nil {
				t.Fatal(err)
			}
			var sources []string
			for _, m := range files {
				sources = append(sources, m.Source)
			}
			if !slices.Contains(sources, "/"+compiler) {
				t.Errorf("a container gets %v, and not /%s", sources, compiler)
			}
		})
	}
}

// Of two drivers the one that runs is taken, and the other is covered too: it is no way round a share.
func TestEveryDriverIsCovered(t *testing.T) {
	h := newHost(t)
	h.whole(debian)
	var want []string
	for i, folder := range []string{debian, "run/nvidia/driver/usr/lib64", "usr/local/nvidia/lib64", "home/kubernetes/bin/nvidia/lib64"} {
		release := []string{current, "535.161.08", "470.256.02", "560.35.03"}[i]
		if i > 0 {
			h.sound(folder, release)
		}
		want = append(want, filepath.Join(h.root, folder, "libcuda.so."+release))
	}
	d, err := Finder{Root: h.root}.Find()
	if err != nil || d.Chosen[CUDA] != want[0] {
		t.Fatalf("%+v, %v", d, err)
	}
	got := slices.Sorted(slices.Values(d.Files[CUDA]))
	slices.Sort(want)
	if !slices.Equal(got, want) || len(d.Aside) != 6 {
		t.Errorf("covered %v, want %v; aside %v", got, want, d.Aside)
	}
}
