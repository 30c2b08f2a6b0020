package v1alpha1

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

const (
	requestText = `{"version":1,"shares":[` +
		`{"name":"main","containers":["first","main"],"gpus":1,"memory":4294967296,"cores":30,"config":{"policy":"fixed","weight":1,"class":"online","backend":"slice"}},` +
		`{"name":"all","containers":["all"],"gpus":2,"whole":true,"selectors":["true"],"sameNUMA":true}]}`
	assignmentText = `{"version":1,"pod":"6d9e","shares":[` +
		`{"name":"main","containers":["first","main"],"gpus":[{"uuid":"GPU-aaaa","memory":4294967296,"cores":30}],"config":{"policy":"fixed","weight":1,"class":"online","backend":"slice"}},` +
		`{"name":"all","containers":["all"],"gpus":[{"uuid":"GPU-bbbb","memory":1,"cores":100},{"uuid":"GPU-cccc","memory":1}],"whole":true}]}`
	gpusText = `{"version":2,"gpus":[{"uuid":"GPU-aaaa","index":0,"model":"T4","memory":17179869184,"contextBytes":1048576,"numaNode":-1,"fault":"it fell off the bus","architecture":"turing","driverVersion":"535.104.5","cudaVersion":"12.2.0","nvlinkClique":"0","pcieSwitch":"0000:01:00.0","pcieRoot":"pci0000:00","pciBusID":"0000:02:00.0","suspends":true,"slots":64}]}`
	heldText = `{"version":1,"gpus":[{"uuid":"GPU-aaaa","memory":1024,"cores":130,"tenants":2,"form":"slice"},{"uuid":"GPU-bbbb","tenants":1}],"shares":[` +
		`{"pod":"6d9e","name":"main","gpus":[{"uuid":"GPU-aaaa","memory":4294967296,"cores":30}],"offline":true},` +
		`{"pod":"6d9e","name":"all","gpus":[{"uuid":"GPU-cccc","memory":1,"cores":100}],"whole":true}]}`
)

func TestAnnotationsReadWhatTheyWrite(t *testing.T) {
	request, err := ParsePodRequest(requestText)
	if err != nil {
		t.Fatal(err)
	}
	assignment, err := ParsePodAssignment(assignmentText)
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := ParseNodeGPUs(gpusText)
	if err != nil {
		t.Fatal(err)
	}
	held, err := ParseNodeHeld(heldText)
	if err != nil {
		t.Fatal(err)
	}
	for want, write := range map[string]func() (string, error){
		requestText: request.Text, assignmentText: assignment.Text, gpusText: gpus.Text, heldText: held.Text,
	} {
		if got, err := write(); err != nil || got != want {
			t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
		}
	}
	if err := assignment.Answers("6d9e", &request); err != nil {
		t.Error(err)
	}
	if s := request.ShareOf("first"); s == nil || s.Name != "main" || request.ShareOf("other") != nil {
		t.Errorf("container first uses %+v", s)
	}
}

func TestAnnotationsAreStrict(t *testing.T) {
	replaced := func(text, old, with string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in %s", old, text)
		}
		return strings.Replace(text, old, with, 1)
	}
	for name, text := range map[string]string{
		"nothing":             "",
		"another version":     replaced(requestText, `"version":1`, `"version":2`),
		"no version":          replaced(requestText, `"version":1,`, ``),
		"unknown field":       replaced(requestText, `"gpus":1`, `"gpus":1,"gpu":1`),
		"repeated field":      replaced(requestText, `"gpus":1`, `"gpus":1,"gpus":2`),
		"case":                replaced(requestText, `"gpus":1`, `"GPUs":1`),
		"trailing text":       requestText + "{}",
		"no shares":           `{"version":1,"shares":[]}`,
		"no container":        replaced(requestText, `["all"]`, `[]`),
		"container of two":    replaced(requestText, `["all"]`, `["main"]`),
		"name of two":         replaced(requestText, `"name":"all"`, `"name":"main"`),
		"name in tags":        replaced(requestText, `"name":"all"`, `"name":"<all>"`),
		"name that escapes":   replaced(requestText, `"name":"all"`, `"name":"\u001b[2J"`),
		"name of two lines":   replaced(requestText, `"name":"all"`, `"name":"a\nll"`),
		"name of 64 bytes":    replaced(requestText, `"name":"all"`, `"name":"`+strings.Repeat("a", 64)+`"`),
		"container in tags":   replaced(requestText, `["all"]`, `["<all>"]`),
		"no GPUs":             replaced(requestText, `"gpus":1`, `"gpus":0`),
		"negative memory":     replaced(requestText, `4294967296`, `-1`),
		"fraction of a byte":  replaced(requestText, `4294967296`, `1.5`),
		"cores beyond a GPU":  replaced(requestText, `"cores":30`, `"cores":101`),
		"no configuration":    replaced(requestText, `,"config":{"policy":"fixed","weight":1,"class":"online","backend":"slice"}`, ``),
		"contradiction":       replaced(requestText, `"fixed"`, `"burst"`),
		"part beside memory":  replaced(requestText, `"cores":30`, `"cores":30,"part":{"of":1,"in":2}`),
		"part that is a GPU":  replaced(requestText, `"memory":4294967296`, `"part":{"of":2,"in":2}`),
		"part of none":        replaced(requestText, `"memory":4294967296`, `"part":{"of":0,"in":0}`),
		"amount of a whole":   replaced(requestText, `"whole":true`, `"whole":true,"cores":1`),
		"empty selector":      replaced(requestText, `["true"]`, `[""]`),
		"another form":        replaced(requestText, `"slice"`, `"mps"`),
		"swap":                replaced(requestText, `"slice"`, `"slice","swap":true`),
		"a kept part":         replaced(requestText, `"slice"`, `"slice","swap":true,"kept":"1Gi"`),
		"leaves when idle":    replaced(requestText, `"slice"`, `"slice","suspendAfter":"10m"`),
		"more than is stored": requestText + strings.Repeat(" ", maxAnnotation),
	} {
		if r, err := ParsePodRequest(text); !errors.Is(err, ErrAnnotation) || !reflect.DeepEqual(r, PodRequest{}) {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
	for name, text := range map[string]string{
		"no pod":           replaced(assignmentText, `"6d9e"`, `""`),
		"no GPU":           replaced(assignmentText, `{"uuid":"GPU-aaaa","memory":4294967296,"cores":30}`, ``),
		"no UUID":          replaced(assignmentText, `GPU-aaaa`, `0`),
		"GPU twice":        replaced(assignmentText, `GPU-cccc`, `GPU-bbbb`),
		"no memory":        replaced(assignmentText, `4294967296`, `0`),
		"cores below none": replaced(assignmentText, `"cores":30`, `"cores":-1`),
		"policy and cores": replaced(assignmentText, `"cores":30`, `"cores":0`),
		"unknown field":    replaced(assignmentText, `"pod"`, `"node":"n","pod"`),
	} {
		if _, err := ParsePodAssignment(text); !errors.Is(err, ErrAnnotation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"index":     replaced(gpusText, `"index":0`, `"index":-1`),
		"NUMA node": replaced(gpusText, `-1`, `-2`),
		"UUID":      replaced(gpusText, `GPU-aaaa`, `GPU`),
	} {
		if _, err := ParseNodeGPUs(text); !errors.Is(err, ErrAnnotation) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An annotation has the bytes that were asked: what tells selectors apart is written as it is.
func TestAnnotationsAreShort(t *testing.T) {
	text := strings.Replace(requestText, `["true"]`, `["device.memory > 1 && 2 < 3"]`, 1)
	request, err := ParsePodRequest(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := request.Text(); err != nil || got != text {
		t.Errorf("%v, %s", err, got)
	}
}

func TestHeldIsStrict(t *testing.T) {
	for _, change := range []struct{ name, old, with string }{
		{"another version", `"version":1`, `"version":2`},
		{"unknown field", `"tenants":1`, `"tenants":1,"weight":1`},
		{"UUID", `GPU-bbbb`, `GPU`},
		{"GPU twice", `GPU-bbbb`, `GPU-aaaa`},
		{"nobody", `"tenants":1`, `"tenants":0`},
		{"negative cores", `130`, `-1`},
		{"cores of more than there can be", `130`, `6553601`},
		{"memory beyond integers", `1024`, `9223372036854775808`},
		{"form", `"slice"`, `"remote"`},
		{"no pod", `"6d9e","name":"all"`, `"","name":"all"`},
		{"no name", `"name":"all"`, `"name":""`},
		{"share twice", `"name":"all"`, `"name":"main"`},
		{"no GPU", `{"uuid":"GPU-cccc","memory":1,"cores":100}`, ``},
		{"no memory", `"memory":1,`, ``},
		{"whole and offline", `"whole":true`, `"whole":true,"offline":true`},
		{"more than is stored", `{`, strings.Repeat(" ", maxHeld) + `{`},
	} {
		text := strings.Replace(heldText, change.old, change.with, 1)
		if h, err := ParseNodeHeld(text); text == heldText || !errors.Is(err, ErrAnnotation) || !reflect.DeepEqual(h, NodeHeld{}) {
			t.Errorf("%s: %v, %+v", change.name, err, h)
		}
	}
	if h, err := ParseNodeHeld(heldText + strings.Repeat(" ", maxHeld-len(heldText))); err != nil || len(h.Shares) != 2 {
		t.Errorf("the longest: %v, %+v", err, h)
	}
}

func TestGPUsOfEarlierAgentsAreRead(t *testing.T) {
	first := `{"version":1,"gpus":[{"uuid":"GPU-aaaa","index":0,"model":"T4","memory":17179869184,"contextBytes":1048576,"numaNode":-1}]}`
	if n, err := ParseNodeGPUs(first); err != nil || n.GPUs[0].Memory != 16<<30 {
		t.Errorf("%v, %+v", err, n)
	}
	for _, text := range []string{strings.Replace(gpusText, `"version":2`, `"version":1`, 1), strings.Replace(gpusText, `"version":2`, `"version":3`, 1)} {
		if n, err := ParseNodeGPUs(text); !errors.Is(err, ErrAnnotation) {
			t.Errorf("%v, %+v", err, n)
		}
	}
}

func TestAssignmentAnswersRequest(t *testing.T) {
	for name, change := range map[string]struct{ old, with string }{
		"more memory":    {`4294967296`, `4294967297`},
		"other cores":    {`"cores":30`, `"cores":31`},
		"other policy":   {`"fixed"`, `"burst","maxCores":100`},
		"other users":    {`["first","main"]`, `["main"]`},
		"fewer GPUs":     {`,{"uuid":"GPU-cccc","memory":1}`, ``},
		"another name":   {`"name":"all"`, `"name":"al"`},
		"another pod":    {`"6d9e"`, `"6d9f"`},
		"share too many": {`"whole":true}]}`, `"whole":true},{"name":"x","containers":["x"],"gpus":[{"uuid":"GPU-dddd","memory":1}],"whole":true}]}`},
		"whole for part": {`"config":{"policy":"fixed","weight":1,"class":"online","backend":"slice"}`, `"whole":true`},
	} {
		request, err := ParsePodRequest(requestText)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(assignmentText, change.old, change.with, 1)
		assignment, err := ParsePodAssignment(text)
		if err != nil || text == assignmentText {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if err := assignment.Answers("6d9e", &request); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{requestText, assignmentText, gpusText, `{}`, `[]`, `{"version":1,"shares":[null]}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParsePodRequest(text); err == nil {
			written, err := r.Text()
			again, faults := ParsePodRequest(written)
			if err != nil || faults != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%q became %q, %v, %v", text, written, err, faults)
			}
		}
		if a, err := ParsePodAssignment(text); err == nil {
			written, err := a.Text()
			again, faults := ParsePodAssignment(written)
			if err != nil || faults != nil || !reflect.DeepEqual(again, a) {
				t.Errorf("%q became %q, %v, %v", text, written, err, faults)
			}
		}
		if n, err := ParseNodeGPUs(text); err == nil {
			written, err := n.Text()
			again, faults := ParseNodeGPUs(written)
			if err != nil || faults != nil || !reflect.DeepEqual(again.GPUs, n.GPUs) {
				t.Errorf("%q became %q, %v, %v", text, written, err, faults)
			}
		}
	})
}
