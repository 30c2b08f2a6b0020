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
"spec":{"parent":"research","resources":[{"model":"H100","unit":"gpus","guaranteed":4000,"limit":8000,"lendingLimit":0,"weight":2}],
"grace":"1m30s","minimumRunTime":"10m","namespaces":["vision"]},"status":{"running":2,"extra":1}}`

func TestDecodeQueue(t *testing.T) {
	q, err := DecodeQueue([]byte(queueText))
	if err != nil {
		t.Fatal(err)
	}
	r := q.Spec.Resources[0]
	if q.Metadata.Name != "vision" || q.Metadata.Generation != 3 || q.Status.Running != 2 || time.Duration(*q.Spec.Grace) != 90*time.Second ||
		r.Guaranteed != 4000 || *r.Limit != 8000 || *r.LendingLimit != 0 || *r.Weight != 2 {
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
		`"parent"`: `"parents"`, `4000`: `4000.5`, `"1m30s"`: `"soon"`, `"Queue"`: `"Queues"`, `8000`: `99999999999999999999`, `"gpus"`: `7`,
	} {
		if _, err := DecodeQueue([]byte(strings.Replace(queueText, old, new, 1))); !errors.Is(err, ErrRequest) {
			t.Errorf("%s for %s: %v", new, old, err)
		}
	}
}

func TestValidateQueue(t *testing.T) {
	for old, want := range map[string][2]string{
		`4000`:         {`-4000`, "guaranteed -4000"},
		`8000`:         {`3999`, "limit 3999 is below"},
		`"weight":2`:   {`"weight":-2`, "weight -2"},
		`Limit":0`:     {`Limit":2000000000000`, "lendingLimit 2000000000000"},
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
	*c.Spec.Resources[0].Limit, *c.Spec.Grace, c.Spec.Namespaces[0] = 1, 1, "other"
	if *q.Spec.Resources[0].Limit != 8000 || time.Duration(*q.Spec.Grace) != 90*time.Second || q.Spec.Namespaces[0] != "vision" {
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
