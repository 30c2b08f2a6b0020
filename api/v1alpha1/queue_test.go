package v1alpha1

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

const queueText = `{"apiVersion":"divvy.dev/v1alpha1","kind":"Queue","metadata":{"name":"vision","generation":3,"labels":{"a":"b"}},
"spec":{"parent":"research","resources":[{"model":"H100","unit":"gpus","guaranteed":4,"limit":"8500m","lendingLimit":0,"weight":2}],
"grace":"1m30s","minimumRunTime":"10m","namespaces":["vision"]},"status":{"running":2,"extra":1}}`

func TestDecodeQueue(t *testing.T) {
	q, err := DecodeQueue([]byte(queueText))
	if err != nil {
		t.Fatal(err)
	}
	r := q.Spec.Resources[0]
	in := func(a Amount) int64 {
		n, err := a.In(UnitGPUs)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if q.Metadata.Name != "vision" || q.Metadata.Generation != 3 || q.Status.Running != 2 || time.Duration(*q.Spec.Grace) != 90*time.Second ||
		in(r.Guaranteed) != 4000 || in(r.Limit) != 8500 || r.LendingLimit.IsZero() || in(r.LendingLimit) != 0 || *r.Weight != 2 {
		t.Errorf("%+v", q)
	}
	if err := q.Spec.Validate(q.Metadata.Name); err != nil {
		t.Error(err)
	}
	written, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := DecodeQueue(written); err != nil || !reflect.DeepEqual(again, q) {
		t.Errorf("%+v, %v", again, err)
	}
	for old, new := range map[string]string{
		`"parent"`: `"parents"`, `:4,`: `:[4],`, `"1m30s"`: `"soon"`, `"Queue"`: `"Queues"`, `"8500m"`: `{"gpus":8}`, `"gpus"`: `7`, `:2}`: `:2.5}`,
	} {
		if _, err := DecodeQueue([]byte(strings.Replace(queueText, old, new, 1))); !errors.Is(err, ErrRequest) {
			t.Errorf("%s for %s: %v", new, old, err)
		}
	}
}

func TestValidateQueue(t *testing.T) {
	for old, want := range map[string][2]string{
		`:4,`:          {`:-4,`, "guaranteed -4: it is negative"},
		`"8500m"`:      {`"3999m"`, "limit 3999m is below guaranteed 4"},
		`"weight":2`:   {`"weight":-2`, "weight -2"},
		`Limit":0`:     {`Limit":2000000000`, "lendingLimit 2000000000: it is more than any"},
		`"unit":"gpus`: {`"unit":"tons`, `unit "tons"`},
		`"H100"`:       {`"H100;"`, "model"},
		`"1m30s"`:      {`"-1s"`, "grace -1s"},
		`"10m"`:        {`"1000h"`, "minimumRunTime 1000h"},
		`["vision"]`:   {`["a","a"]`, "named twice"},
		`"research"`:   {`"Re search"`, "parent"},
		`"weight":2}`:  {`"weight":2},{"model":"H100"}`, "named twice"},
	} {
		q, err := DecodeQueue([]byte(strings.Replace(queueText, old, want[0], 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Spec.Validate("q"); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%s: %v", want[0], err)
		}
	}
	for namespace, good := range map[string]bool{"*": true, "a-1": true, "": false, "a*": false, "A": false, "-": false, strings.Repeat("a", 64): false} {
		if err := (&QueueSpec{Namespaces: []string{namespace}}).Validate("q"); (err == nil) != good {
			t.Errorf("namespace %q: %v", namespace, err)
		}
	}
	if err := (&QueueSpec{}).Validate("Not a name"); err == nil {
		t.Error("a name with spaces")
	}
}

func TestCopyOfAQueue(t *testing.T) {
	q, err := DecodeQueue([]byte(queueText))
	if err != nil {
		t.Fatal(err)
	}
	c := q.DeepCopy()
	*c.Spec.Resources[0].Weight, *c.Spec.Grace, c.Spec.Namespaces[0] = 1, 1, "other"
	c.Spec.Resources[0].Limit = Written("1")
	if q.Spec.Resources[0].Limit != Written("8500m") || *q.Spec.Resources[0].Weight != 2 || time.Duration(*q.Spec.Grace) != 90*time.Second || q.Spec.Namespaces[0] != "vision" {
		t.Errorf("%+v", q)
	}
}

func TestParseQuota(t *testing.T) {
	for s, want := range map[string]Quota{"": QuotaBorrowing, "guaranteed": QuotaGuaranteed, "opportunistic": QuotaOpportunistic} {
		if q, err := ParseQuota(s); q != want || err != nil {
			t.Errorf("%q: %q, %v", s, q, err)
		}
	}
	if _, err := ParseQuota("gold"); !errors.Is(err, ErrRequest) {
		t.Error(err)
	}
}
