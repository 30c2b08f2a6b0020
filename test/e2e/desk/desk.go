// Package desk is where a person sits who administers a cluster of the tests: it runs the commands of a page with the
// programs that the page names, and compares what they print.
package desk

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/test/docs/session"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

var update = flag.Bool("update", false, "write into the pages what their commands print")

const (
	// longest bounds each command, on a busy machine.
	longest = 3 * time.Minute
	// settles is how long a command that may be repeated has to print what the page says.
	settles = 2 * time.Minute
)

// Desk runs the commands of a page that the book of commands gives to a test. The test fails unless it runs all of them.
type Desk struct {
	t       *testing.T
	cluster *cluster.Cluster
	page    string
	root    string // of the repository
	dir     string // where commands run: the files of the repository that pages name
	book    *session.Book
	all     []session.Command // of the page and the test
	left    []session.Command // those that have not been run
	settle  time.Duration
	printed map[int]string // by the commands' lines, what differs from the page
}

// Open sits down at a cluster with a page. test names the test as the book does.
func Open(t *testing.T, c *cluster.Cluster, page, test string) *Desk {
	t.Helper()
	d := &Desk{t: t, cluster: c, page: page, dir: t.TempDir(), settle: settles, printed: map[int]string{}}
	var err error
	if d.root, err = cluster.Repository(); err == nil {
		d.all, d.book, err = session.Page(d.root, page, test)
	}
	if err == nil {
		err = furnish(d.dir, d.root, c.Nodes[0].SimgpuDir())
	}
	if err == nil {
		err = plugin(d.dir, c.Programs())
	}
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		d.settle = 20 * time.Second
	}
	d.left = slices.Clone(d.all)
	t.Cleanup(d.close)
	return d
}

// close fails the test where commands of the page were not run, and writes into the page what differs if it is told so.
func (d *Desk) close() {
	for _, fault := range d.unrun() {
		d.t.Error(fault)
	}
	if !*update || len(d.printed) == 0 {
		return
	}
	file := filepath.Join(d.root, d.page)
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(session.Rewrite(string(text), d.all, d.printed)), 0o644) //nolint:gosec // for everybody to read
	}
	if err != nil {
		d.t.Error(err)
	}
}

// unrun lists the commands that were not run.
func (d *Desk) unrun() []string {
	var faults []string
	for _, c := range d.left {
		faults = append(faults, c.String()+": the test has not run it")
	}
	return faults
}

// Last puts commands behind all others: those in whose place the page offers others.
func (d *Desk) Last(texts ...string) {
	d.t.Helper()
	for _, text := range texts {
		at := d.find(text)
		d.left = append(slices.Delete(slices.Clone(d.left), at, at+1), d.left[at])
	}
}

// Through runs the commands up to one, and that one.
func (d *Desk) Through(ctx context.Context, text string) {
	d.t.Helper()
	for range d.find(text) + 1 {
		d.next(ctx)
	}
}

// Rest runs all that are left.
func (d *Desk) Rest(ctx context.Context) {
	d.t.Helper()
	for len(d.left) > 0 {
		d.next(ctx)
	}
}

func (d *Desk) find(text string) int {
	d.t.Helper()
	at := slices.IndexFunc(d.left, func(c session.Command) bool { return c.Text == text })
	if at < 0 {
		d.t.Fatalf("%s has no command %q that is left", d.page, text)
	}
	return at
}

// next runs the next command: one of root's on every node, and any other in the place of the administrator.
func (d *Desk) next(ctx context.Context) {
	d.t.Helper()
	c := d.left[0]
	d.left = d.left[1:]
	if c.User != "root" {
		d.shows(ctx, c, d.administrator)
		return
	}
	for _, n := range d.cluster.Nodes {
		d.shows(ctx, c, func(ctx context.Context, text string) (string, error) { return d.node(ctx, n, text) })
	}
}

// shows compares what a command prints with the page. One that may be repeated is, until what came before has had its
// effect.
func (d *Desk) shows(ctx context.Context, c session.Command, run func(context.Context, string) (string, error)) {
	d.t.Helper()
	begun := time.Now()
	for last := begun.Add(d.settle); ; {
		bounded, cancel := context.WithTimeout(ctx, longest)
		output, err := run(bounded, c.Text)
		cancel()
		switch {
		case d.book.Prints(c, output) && (err == nil || c.Output != ""):
			d.t.Logf("%v: %.1f s", c, time.Since(begun).Seconds())
			return
		case err == nil && !d.book.Repeats(c), time.Now().After(last), ctx.Err() != nil:
			d.printed[c.Line] = output
			d.t.Errorf("%v\nprints (%v)\n%s\nand the page has\n%s", c, err, output, c.Output)
			return
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// merged has a shell write all that a command says to its output.
func merged(text string) string { return "exec 2>&1 </dev/null\nset -o pipefail\n" + text }

// administrator runs a command where the page is read. What is built is built in the repository itself, outside of the
// cluster's network.
func (d *Desk) administrator(ctx context.Context, text string) (string, error) {
	cmd := d.cluster.Command(ctx, "bash", "-c", merged(text))
	cmd.Dir = d.dir
	cmd.Env = slices.DeleteFunc(cmd.Env, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "MAKE") || name == "MFLAGS" || strings.HasPrefix(name, "DIVVY_") || name == "PATH"
	})
	path := append(d.cluster.Programs(), os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(d.dir, "bin")+":"+strings.Join(path, ":"), "TERM=dumb")
	if strings.HasPrefix(text, "make ") {
		cmd.Dir = d.root
		output, err := cmd.Output()
		return string(output), err
	}
	return d.cluster.Output(cmd)
}

// node runs a command on a node, where the images were brought.
func (d *Desk) node(ctx context.Context, n *cluster.Machine, text string) (string, error) {
	archive, err := cluster.Image("divvy")
	if err != nil {
		return "", err
	}
	return n.Output(n.Command(ctx, "bash", "-c", merged("cd "+filepath.Dir(archive)+"\n"+text)))
}
