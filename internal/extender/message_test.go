package extender

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

const somePod = `{"metadata":{"name":"p","namespace":"n","uid":"u","annotations":{"a":"\"}]\\"}},"spec":{"containers":[{"name":"c"}]}}`

func TestQuestion(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want string // nodes, or a part of the error
	}{
		"as kube-scheduler writes it": {`{"Pod":` + somePod + `,"Nodes":null,"NodeNames":["a","b-1.x"]}`, "a b-1.x"},
		"with space and later fields": {` { "NodeNames" : [ "a" , "b" ] , "Later":{"x":[1,"]"]}, "Pod" : ` + somePod + ` } `, "a b"},
		"no node":                     {`{"Pod":` + somePod + `,"NodeNames":[]}`, ""},
		"escaped":                     {`{"Pod":` + somePod + `,"NodeNames":["\u0061"]}`, "a"},
		"whole nodes":                 {`{"Pod":` + somePod + `,"Nodes":{"items":[]},"NodeNames":null}`, "nodeCacheCapable"},
		"names are missing":           {`{"Pod":` + somePod + `,"Nodes":null,"NodeNames":null}`, "nodeCacheCapable"},
		"a name is empty":             {`{"Pod":` + somePod + `,"NodeNames":[""]}`, "1 to 253"},
		"a name is long":              {`{"Pod":` + somePod + `,"NodeNames":["` + strings.Repeat("a", 254) + `"]}`, "1 to 253"},
		"too many":                    {`{"Pod":` + somePod + `,"NodeNames":["a"` + strings.Repeat(`,"a"`, mostNodes) + `]}`, "more than"},
		"a number":                    {`{"Pod":` + somePod + `,"NodeNames":[1]}`, "NodeNames"},
		"a list without an end":       {`{"Pod":` + somePod + `,"NodeNames":["a"}`, "JSON"},
		"twice":                       {`{"Pod":` + somePod + `,"Pod":` + somePod + `,"NodeNames":["a"]}`, "twice"},
		"no pod":                      {`{"Pod":null,"NodeNames":["a"]}`, "no pod"},
		"a pod without a UID":         {`{"Pod":{"metadata":{"name":"p","namespace":"n"}},"NodeNames":["a"]}`, "no UID"},
		"a pod that is a list":        {`{"Pod":[],"NodeNames":["a"]}`, "Pod"},
		"more behind it":              {`{"Pod":` + somePod + `,"NodeNames":["a"]}{}`, "JSON"},
		"deep":                        {`{"Pod":` + strings.Repeat("[", 10_000) + `,"NodeNames":["a"]}`, "deeper"},
		"nothing":                     {``, "JSON"},
		"no object":                   {`[]`, "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := readQuestion([]byte(test.text))
			if err != nil {
				if !errors.Is(err, errMessage) || test.want == "" || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				return
			}
			if got := strings.Join(q.nodes, " "); got != test.want || q.pod.Name != "p" || q.pod.Annotations["a"] != `"}]\` {
				t.Errorf("%q of %+v, want %q", got, q.pod, test.want)
			}
		})
	}
}

func TestBinding(t *testing.T) {
	const good = `{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"a.b"}`
	if b, err := readBinding([]byte(good)); err != nil || b != (binding{"p", "n", "u", "a.b"}) {
		t.Errorf("%+v, %v", b, err)
	}
	for _, bad := range []string{
		`{}`, `null`, `{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":""}`, strings.Replace(good, `"n"`, `"../n"`, 1), strings.Replace(good, `"u"`, `1`, 1),
		strings.Replace(good, `"Node"`, `"PodUID":"v","Node"`, 1), strings.Replace(good, "a.b", strings.Repeat("a", 254), 1), good + "x",
	} {
		if b, err := readBinding([]byte(bad)); !errors.Is(err, errMessage) {
			t.Errorf("%s: %+v, %v", bad, b, err)
		}
	}
}

// An answer is what the scheduler's own decoder reads of it.
func TestAnswers(t *testing.T) {
	const hostile = "a\"b\\c\n<é\xff"
	f := filtered{fits: []string{"a", hostile}, refused: []refused{{"b", "no\nroom"}, {"c", ""}}, fault: hostile}
	var read struct {
		NodeNames                  *[]string
		FailedAndUnresolvableNodes map[string]string
		Error                      string
	}
	want := strings.ToValidUTF8(hostile, "\ufffd")
	if err := json.Unmarshal(f.text(), &read); err != nil || !slices.Equal(*read.NodeNames, []string{"a", want}) || read.FailedAndUnresolvableNodes["b"] != "no\nroom" || read.Error != want {
		t.Errorf("%s: %+v, %v", f.text(), read, err)
	}
	if text := (&filtered{}).text(); json.Unmarshal(text, &read) != nil || read.NodeNames == nil || len(*read.NodeNames) != 0 {
		t.Errorf("%s: the scheduler takes no names for all nodes' failure", text)
	}
	var scores []struct {
		Host  string
		Score int64
	}
	if err := json.Unmarshal(scoresText([]scored{{"none", 0}, {"a", 10}, {"none", 0}, {hostile, 3}}), &scores); err != nil || len(scores) != 2 || scores[0].Host != "a" || scores[0].Score != 10 || scores[1].Host != want {
		t.Errorf("%+v, %v", scores, err)
	}
}

// Whatever reads as a question reads as the same with a general decoder, and what that one refuses is refused.
func FuzzQuestion(f *testing.F) {
	for _, text := range []string{
		`{"Pod":` + somePod + `,"Nodes":null,"NodeNames":["a","b"]}`, `{"Pod":{},"NodeNames":["\u0061"," "]}`, `{"A":[{"b":"\\\""}],"B":1e9}`, `{"A":"\"","A":1}`, `{}`, `{"a":}`, `{"a":[}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		q, err := readQuestion(text)
		fields, scanned := objectOf(text, mostFields)
		var general map[string]json.RawMessage
		if strict := json.Unmarshal(text, &general); strict == nil && scanned == nil && general != nil {
			for key, value := range general {
				if string(fields[key]) != string(value) {
					t.Errorf("field %q is %s, not %s", key, fields[key], value)
				}
			}
		}
		if err != nil {
			return
		}
		var names []string
		if wrong := json.Unmarshal(fields["NodeNames"], &names); wrong != nil || !slices.Equal(names, q.nodes) {
			t.Errorf("%s are %q, not %q: %v", fields["NodeNames"], names, q.nodes, wrong)
		}
	})
}
