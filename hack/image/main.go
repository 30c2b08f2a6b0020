// Command image writes the container images that Divvy is installed and tested
// with, as OCI archives: without a registry, a container engine or root. Their
// files are what was built here and Debian's packages, fetched by apt-get once
// and kept. The same inputs give the same bytes.
//
//	go run ./hack/image -build build -out build/images -packages .cache/e2e/packages divvy gpubench pause
//	go run ./hack/image -kubernetes .cache/e2e/kubernetes-v1.36.3 kube-scheduler
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/version"
)

// recipe says what an image is made of.
type recipe struct {
	reference  string   // full name, but for the version
	packages   []string // of the distribution
	tree       []string // files and folders of the build, and where they go below /usr/local
	links      []string // names in /bin that busybox is called by
	kubernetes []string // programs of Kubernetes
	entrypoint []string
	command    []string
}

var shell = []string{
	"sh", "cat", "cp", "date", "dd", "echo", "env", "false", "grep", "head", "id", "kill", "ls", "mkdir", "mount",
	"mv", "nc", "ps", "readlink", "rm", "sed", "sleep", "stat", "tail", "test", "touch", "tr", "true", "uname", "wc", "wget",
}

var recipes = map[string]recipe{
	"divvy": {
		reference:  "ghcr.io/divvy-gpu/divvy",
		packages:   []string{"libc6", "libgcc-s1", "gcc-12-base"},
		tree:       []string{"bin/divvy", "lib/divvy", "lib/remote", "lib/simgpu", "libexec/divvy"},
		entrypoint: []string{"/usr/local/bin/divvy"},
	},
	"gpubench": {
		reference: "ghcr.io/divvy-gpu/gpubench",
		packages:  []string{"libc6", "libgcc-s1", "gcc-12-base", "busybox-static"},
		tree:      []string{"bin/gpubench"},
		links:     shell,
		command:   []string{"gpubench"},
	},
	// What a pod's sandbox runs where no other image can be fetched: it waits.
	"pause": {
		reference:  "divvy.test/pause",
		packages:   []string{"busybox-static"},
		entrypoint: []string{"/bin/busybox", "sleep", "infinity"},
	},
	// The cluster's own scheduler under the name that the chart gives, for clusters that can fetch no image.
	"kube-scheduler": {
		reference:  "registry.k8s.io/kube-scheduler",
		kubernetes: []string{"kube-scheduler"},
		entrypoint: []string{"/usr/local/bin/kube-scheduler"},
	},
}

// versions of images that are not Divvy's own.
var versions = map[string]string{"pause": "1"}

func main() {
	build := flag.String("build", "build", "where Divvy was built")
	out := flag.String("out", "build/images", "folder for the archives")
	cache := flag.String("packages", ".cache/e2e/packages", "folder where fetched packages are kept")
	tag := flag.String("version", version.Number(), "tag of Divvy's images")
	kubernetes := flag.String("kubernetes", "", "folder kubernetes-VERSION of Kubernetes' programs")
	flag.Parse()
	if err := run(sources{*build, *cache, *kubernetes}, *out, *tag, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// sources are folders from which images are made.
type sources struct {
	build, packages, kubernetes string
}

func run(from sources, out, ours string, names []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		r, ok := recipes[name]
		if !ok {
			return fmt.Errorf("there is no image %q", name)
		}
		tag := ours
		if own, ok := versions[name]; ok {
			tag = own
		}
		file := name + ".tar"
		if r.kubernetes != nil {
			// A build keeps those of several versions.
			tag = strings.TrimPrefix(filepath.Base(from.kubernetes), "kubernetes-")
			file = name + "-" + tag + ".tar"
		}
		path := filepath.Join(out, file)
		if err := write(path, r, r.reference+":"+tag, from); err != nil {
			return fmt.Errorf("write image %s: %w", name, err)
		}
		fmt.Println(path, r.reference+":"+tag)
	}
	return nil
}

func write(path string, r recipe, reference string, from sources) error {
	files := newLayer()
	for _, name := range r.packages {
		archive, err := fetch(from.packages, name)
		if err != nil {
			return err
		}
		if err := files.addPackage(archive); err != nil {
			return fmt.Errorf("unpack %s: %w", archive, err)
		}
	}
	for _, entry := range r.tree {
		if err := files.addTree(filepath.Join(from.build, entry), filepath.Join("usr/local", entry)); err != nil {
			return err
		}
	}
	for _, link := range r.links {
		files.addLink("usr/bin/"+link, "busybox")
	}
	for _, program := range r.kubernetes {
		content, err := os.ReadFile(filepath.Join(from.kubernetes, program))
		if err != nil {
			return err
		}
		files.addFile("usr/local/bin/"+program, 0o755, content)
	}
	layer, err := files.bytes()
	if err != nil {
		return err
	}
	return writeArchive(path, reference, layer, r.entrypoint, r.command)
}
