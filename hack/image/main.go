// Command image writes the container images that Divvy is installed and tested
// with, as OCI archives: without a registry, a container engine or root. Their
// files are what was built here and Debian's packages, fetched by apt-get once
// and kept. The same inputs give the same bytes.
//
//	go run ./hack/image -build build -out build/images -packages .cache/e2e/packages divvy gpubench pause
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/version"
)

// recipe says what an image is made of.
type recipe struct {
	reference  string   // full name, but for the version
	packages   []string // of the distribution
	tree       []string // files and folders of the build, and where they go below /usr/local
	links      []string // names in /bin that busybox is called by
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
}

// versions of images that are not Divvy's own.
var versions = map[string]string{"pause": "1"}

func main() {
	build := flag.String("build", "build", "where Divvy was built")
	out := flag.String("out", "build/images", "folder for the archives")
	cache := flag.String("packages", ".cache/e2e/packages", "folder where fetched packages are kept")
	tag := flag.String("version", version.Number(), "tag of Divvy's images")
	flag.Parse()
	if err := run(*build, *out, *cache, *tag, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(build, out, cache, ours string, names []string) error {
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
		path := filepath.Join(out, name+".tar")
		if err := write(path, r, r.reference+":"+tag, build, cache); err != nil {
			return fmt.Errorf("write image %s: %w", name, err)
		}
		fmt.Println(path, r.reference+":"+tag)
	}
	return nil
}

func write(path string, r recipe, reference, build, cache string) error {
	files := newLayer()
	for _, name := range r.packages {
		archive, err := fetch(cache, name)
		if err != nil {
			return err
		}
		if err := files.addPackage(archive); err != nil {
			return fmt.Errorf("unpack %s: %w", archive, err)
		}
	}
	for _, entry := range r.tree {
		if err := files.addTree(filepath.Join(build, entry), filepath.Join("usr/local", entry)); err != nil {
			return err
		}
	}
	for _, link := range r.links {
		files.addLink("usr/bin/"+link, "busybox")
	}
	layer, err := files.bytes()
	if err != nil {
		return err
	}
	return writeArchive(path, reference, layer, r.entrypoint, r.command)
}
