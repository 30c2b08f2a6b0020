package tenantdir

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The library in a tenant's processes finds the files of the tenant's directory by
// the names that this package gives them. Its sources name them in calls of snprintf.
func TestTheLibraryKnowsTheNames(t *testing.T) {
	const device, k = 3, 5
	d := Dir("t")
	for source, c := range map[string]struct {
		call string
		args [][]any // of the calls, in their order
		want []string
	}{
		"open.c":  {`snprintf\(share->path, sizeof share->path, "%s/([^"]*)", dir\)`, [][]any{nil, nil}, []string{d.Config(), d.State()}},
		"pulse.c": {`snprintf\(name, sizeof name, "([^"]*)", [^"]*\)`, [][]any{{device}, {device, k}}, []string{d.Pulse(device), d.Beat(device, k)}},
	} {
		text, err := os.ReadFile(filepath.Join("../../lib/share", source))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, call := range regexp.MustCompile(c.call).FindAllStringSubmatch(string(text), -1) {
			if i >= len(c.args) {
				t.Fatalf("lib/share/%s names a further file: %s", source, call[0])
			}
			got = append(got, filepath.Join(string(d), fmt.Sprintf(strings.ReplaceAll(call[1], "%u", "%d"), c.args[i]...)))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("lib/share/%s names %q, this package %q", source, got, c.want)
		}
	}
}
