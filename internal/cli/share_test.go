package cli

import (
	"strings"
	"testing"
)

func TestShareCreateIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args   string
		status int
		want   string
	}{
		"no agent":       {"create train --memory 8Gi", 1, "no system agent runs, which shares for containers need: start it as root"},
		"no machine":     {"create train --memory 8Gi --simgpu t4", 1, "start it as root (`divvy agent --simgpu t4`)"},
		"a bad name":     {"create Train/1 --memory 8Gi", 2, "cannot be the name of a container device"},
		"a bad end":      {"create train. --memory 8Gi", 2, "end with a letter or digit"},
		"capitals":       {"create Train --memory 8Gi", 2, "lower-case letters"},
		"no name":        {"create --memory 8Gi", 2, "the name of the share"},
		"nobody":         {"create train --for nobody-of-that-name", 2, "there is no user"},
		"a strange flag": {"create train --cores 300", 2, "--cores"},
		"nothing to do":  {"", 2, "say what to do"},
		"nothing to end": {"rm", 2, "one or more shares"},
		"an unknown one": {"rm train", 1, "no such share"},
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
