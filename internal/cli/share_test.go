package cli

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

func TestShareCreateIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args   string
		status int
		want   string
	}{
		"no agent":       {"create train --memory 8Gi", 1, "no system agent runs, which this needs: start it as root"},
		"no machine":     {"create train --memory 8Gi --simgpu t4", 1, "start it as root (`divvy agent --simgpu t4`)"},
		"a bad name":     {"create Train/1 --memory 8Gi", 2, "cannot be the name of a container device"},
		"a bad end":      {"create train. --memory 8Gi", 2, "end with a letter or digit"},
		"capitals":       {"create Train --memory 8Gi", 2, "lower-case letters"},
		"no name":        {"create --memory 8Gi", 2, "the name of the share"},
		"nobody":         {"create train --for nobody-of-that-name", 2, "--for: there is no user"},
		"only a number":  {"create train --for 7171", 1, "no system agent runs"},
		"nobody's":       {"create train --for 4294967295", 2, "there is no user"},
		"a strange flag": {"create train --cores 300", 2, "--cores"},
		"nothing to do":  {"", 2, "say what to do"},
		"nothing to end": {"rm", 2, "one or more shares"},
		"an unknown one": {"rm train", 1, "no such share"},
		"shows none":     {"show train --cdi-dir /nowhere", 1, "divvy: train: there is no share for containers of that name"},
		"shows a path":   {"show ../train", 2, "cannot be the name of a container device"},
		"a strange form": {"show train -o podman", 2, "use device or docker"},
		"no grace":       {"rm train --grace=-1s", 2, "give a time of 0 or more"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := call(t, append([]string{"share"}, strings.Fields(test.args)...)...)
			if status != test.status || out != "" || !strings.Contains(errOut, test.want) || !strings.HasPrefix(errOut, "divvy: ") {
				t.Errorf("status %d, output %q, errors %q; want status %d and %q", status, out, errOut, test.status, test.want)
			}
		})
	}
}

func TestShareShow(t *testing.T) {
	dir := t.TempDir()
	e := edits.Edits{Mounts: []edits.Mount{{Source: "/dev/shm/t", Target: edits.ShareDir, Options: edits.ReadOnly}}, Env: []edits.Env{{Name: "A", Value: "1"}}}
	if err := (cdi.Shares{Dir: dir, Kind: v1alpha1.CDIKind}).Write("train", e); err != nil {
		t.Fatal(err)
	}
	for form, want := range map[string]string{
		"device": "divvy.dev/share=train\n",
		"docker": "--mount=type=bind,source=/dev/shm/t,target=/run/divvy/share,readonly --env=A=1\n",
	} {
		if status, out, errOut := call(t, "share", "show", "train", "--cdi-dir", dir, "-o", form); status != 0 || out != want || errOut != "" {
			t.Errorf("%s: status %d, output %q, errors %q", form, status, out, errOut)
		}
	}
}
