// Command dist writes what a release consists of: an archive of the installed tree, a Debian package, the chart, and the sums of
// all of it. The same sources give the same bytes, in whatever folder they lie.
//
//	go run ./hack/dist -build build -deb build/obj/deb -time "$(git log -1 --format=%ct)"
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/cli"
	"github.com/divvy-gpu/divvy/internal/cli/cluster"
	"github.com/divvy-gpu/divvy/internal/version"
)

// release is what is written, from which build, as of when.
type release struct {
	build, out, deb string
	made            time.Time
}

const packageFile = "deploy/deb/nfpm.yaml"

// maintainer is who the package's description names.
func maintainer() (string, error) {
	text, err := os.ReadFile(packageFile)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(line, "maintainer: "); found {
			return strings.TrimSpace(name), nil
		}
	}
	return "", errors.New(packageFile + " names no maintainer")
}

func main() {
	var r release
	flag.StringVar(&r.build, "build", "build", "where Divvy was built")
	flag.StringVar(&r.deb, "deb", "build/obj/deb", "the program of hack/deb")
	seconds := flag.Int64("time", 0, "time of all files, in seconds since 1970")
	flag.Parse()
	r.out, r.made = filepath.Join(r.build, "dist"), time.Unix(*seconds, 0).UTC()
	if err := r.write(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func (r release) write() error {
	number := version.Number()
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	chart := tree{}
	if err := chart.add("deploy/chart", ""); err != nil {
		return err
	}
	if err := chart.pack(filepath.Join(r.out, "divvy-"+number+".tgz"), "divvy", r.made); err != nil {
		return err
	}
	name := "divvy-" + number + "-linux-" + runtime.GOARCH
	local, err := r.installed("/usr/local")
	if err != nil {
		return err
	}
	if err := local.pack(filepath.Join(r.out, name+".tar.gz"), name, r.made); err != nil {
		return err
	}
	for _, image := range []string{"divvy", "gpubench"} {
		content, err := os.ReadFile(filepath.Join(r.build, "images", image+".tar"))
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(r.out, fmt.Sprintf("%s-image-%s-%s.tar", image, number, runtime.GOARCH)), content); err != nil {
			return err
		}
	}
	if err := r.writeDeb(number); err != nil {
		return err
	}
	return writeSums(r.out)
}

// writeDeb writes the Debian package.
func (r release) writeDeb(number string) error {
	files, err := r.packaged()
	if err != nil {
		return err
	}
	root := filepath.Join(r.build, "obj", "dist-root")
	if err := files.lay(root); err != nil {
		return err
	}
	deb := exec.Command(r.deb, "-config", packageFile, "-root", root, "-version", number, "-arch", runtime.GOARCH,
		"-time", strconv.FormatInt(r.made.Unix(), 10), "-out", filepath.Join(r.out, fmt.Sprintf("divvy_%s_%s.deb", number, runtime.GOARCH)))
	deb.Stderr = os.Stderr
	return errors.Join(deb.Run(), os.RemoveAll(root))
}

// installed is the tree below a prefix such as /usr/local, without the prefix. What is not below it in the package, such as
// configuration, lies in share/divvy there.
func (r release) installed(prefix string) (tree, error) {
	t := tree{"bin/kubectl-divvy": {target: "divvy"}}
	err := errors.Join(
		t.add(filepath.Join(r.build, "bin/divvy"), "bin/divvy"), t.add(filepath.Join(r.build, "bin/gpubench"), "bin/gpubench"), t.add(filepath.Join(r.build, "lib/divvy"), "lib/divvy"),
		t.add(filepath.Join(r.build, "lib/remote"), "lib/remote"), t.add(filepath.Join(r.build, "lib/simgpu"), "lib/simgpu"), t.add(filepath.Join(r.build, "libexec/divvy"), "libexec/divvy"),
		t.add("README.md", "share/doc/divvy/README.md"), t.add("LICENSE", "share/doc/divvy/LICENSE"), t.add("CHANGELOG.md", "share/doc/divvy/CHANGELOG.md"),
		t.add("examples/agent.yaml", "share/doc/divvy/examples/agent.yaml"),
		t.add("deploy/chart/files/alerts.yaml", "share/doc/divvy/prometheus/alerts.yaml"), t.add("deploy/chart/files/dashboards", "share/doc/divvy/grafana"),
		t.add("deploy/deb/agent.yaml", "share/doc/divvy/examples/agent-default.yaml"))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"divvy-agent.service", "divvy-serve.service"} {
		unit, err := os.ReadFile(filepath.Join("deploy/deb", name))
		if err != nil {
			return nil, err
		}
		t["lib/systemd/system/"+name] = file{content: bytes.ReplaceAll(unit, []byte("@PREFIX@"), []byte(prefix))}
	}
	for name, page := range manuals(r.made, version.Number(), cli.Commands(), cluster.Commands()) {
		if page, err = compressed(page); err != nil {
			return nil, err
		}
		t["share/man/man1/"+name+".gz"] = file{content: page}
	}
	usage, err := os.ReadFile("deploy/deb/gpubench.1")
	if err == nil {
		usage, err = compressed(usage)
	}
	t["share/man/man1/gpubench.1.gz"], t["share/man/man1/kubectl-divvy.1.gz"] = file{content: usage}, file{target: "divvy.1.gz"}
	return t, errors.Join(err, r.strip(t), complete(t))
}

// complete adds what shells complete commands by.
func complete(t tree) error {
	root := cli.Commands()
	for name, write := range map[string]func(io.Writer) error{
		"bash-completion/completions/divvy":    func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh/vendor-completions/_divvy":        root.GenZshCompletion,
		"fish/vendor_completions.d/divvy.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		t["share/"+name] = file{content: b.Bytes()}
	}
	return nil
}

// strip takes from C programs and libraries what only debuggers read. Build ids stay: who builds the same sources has it again.
func (r release) strip(t tree) error {
	work := filepath.Join(r.build, "obj", "dist-strip")
	for name, f := range t {
		// Programs in Go are linked without it.
		if !bytes.HasPrefix(f.content, []byte("\x7fELF")) || bytes.Contains(f.content, []byte(".gopclntab")) {
			continue
		}
		if err := os.WriteFile(work, f.content, 0o600); err != nil {
			return err
		}
		if said, err := exec.Command("strip", "--strip-unneeded", work).CombinedOutput(); err != nil {
			return fmt.Errorf("strip %s: %w: %s", name, err, said)
		}
		stripped, err := os.ReadFile(work)
		if err != nil {
			return err
		}
		f.content = stripped
		f.program = f.program && !strings.Contains(path.Base(name), ".so.")
		t[name] = f
	}
	return os.RemoveAll(work)
}

// packaged is the tree of the Debian package.
func (r release) packaged() (tree, error) {
	below, err := r.installed("/usr")
	if err != nil {
		return nil, err
	}
	t := tree{}
	for name, f := range below {
		switch name {
		case "share/doc/divvy/LICENSE", "share/doc/divvy/examples/agent-default.yaml":
			// In the file of copyright, and in /etc.
		case "share/doc/divvy/CHANGELOG.md":
			if f.content, err = compressed(f.content); err != nil {
				return nil, err
			}
			t["usr/share/doc/divvy/CHANGELOG.md.gz"] = f
		default:
			t["usr/"+name] = f
		}
	}
	who, err := maintainer()
	if err != nil {
		return nil, err
	}
	changes, err := compressed(fmt.Appendf(nil, "divvy (%s) stable; urgency=medium\n\n  * CHANGELOG.md.gz tells what changed.\n\n -- %s  %s\n",
		version.Number(), who, r.made.Format(time.RFC1123Z)))
	t["usr/share/doc/divvy/changelog.gz"] = file{content: changes}
	return t, errors.Join(err, t.add("deploy/deb/lintian-overrides", "usr/share/lintian/overrides/divvy"), t.add("deploy/deb/agent.yaml", "etc/divvy/agent.yaml"), t.add("deploy/deb/divvy-agent.default", "etc/default/divvy-agent"),
		t.add("deploy/deb/copyright", "usr/share/doc/divvy/copyright"))
}

// writeSums writes the sums of all files of a folder.
func writeSums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), entry.Name()))
	}
	slices.Sort(lines)
	return replace(filepath.Join(folder, "SHA256SUMS"), []byte(strings.Join(lines, "")))
}
