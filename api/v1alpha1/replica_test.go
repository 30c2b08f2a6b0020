package v1alpha1

import (
	"errors"
	"reflect"
	"testing"
)

func TestReplicas(t *testing.T) {
	all := []Replica{{UUID: "GPU-a", Of: 4, Number: 3, Backend: BackendMPS}, {UUID: "GPU-a", Of: 4, Backend: BackendMPS}, {UUID: "GPU-b"}}
	got, err := ParseReplicas(ReplicasText(all))
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%v, %v", got, err)
	}
	for i, want := range []string{"GPU-a::3", "GPU-a::0", "GPU-b"} {
		if all[i].ID() != want {
			t.Errorf("%s, not %s", all[i].ID(), want)
		}
	}
}

func TestReplicasOfAnInstance(t *testing.T) {
	half := Replica{UUID: "GPU-a", Instance: "MIG-1", Profile: "1g.10gb+me", Start: 6, Memory: 10 << 30, Of: 2, Backend: BackendTimeslice}
	other := half
	other.Number = 1
	got, err := ParseReplicas(ReplicasText([]Replica{half, other}))
	if err != nil || !reflect.DeepEqual(got, []Replica{half, other}) {
		t.Errorf("%v, %v", got, err)
	}
	whole := half
	whole.Of, whole.Backend = 0, ""
	if half.ID() != "MIG-1::0" || whole.ID() != "MIG-1" || whole.Device() != "MIG-1" {
		t.Errorf("they are named %s and %s", half.ID(), whole.ID())
	}
}

func TestInvalidReplicas(t *testing.T) {
	for _, text := range []string{
		"", "[]", "{}", `[{"of":2}]`, `[{"uuid":"a","of":-1}]`, `[{"uuid":"a","of":65}]`, `[{"uuid":"a","of":2,"number":2}]`,
		`[{"uuid":"a","number":1}]`, `[{"uuid":"a"},{"uuid":"a"}]`, `[{"uuid":"a","of":2},{"uuid":"a","of":3,"number":1}]`,
		`[{"uuid":"a","instance":"MIG-1","memory":1}]`, `[{"uuid":"a","instance":"MIG-1","profile":"1g.10gb"}]`,
		`[{"uuid":"a","instance":"MIG-1","profile":"1g.10gb","memory":1,"start":-1}]`,
		`[{"uuid":"a","instance":"MIG-1","profile":"1g.10gb","memory":1},{"uuid":"a","instance":"MIG-2","profile":"1g.10gb","memory":1}]`,
		`[{"uuid":"a","instance":"MIG-1","profile":"1g.10gb","memory":1},{"uuid":"b"}]`,
		`[{"uuid":"a","of":2,"backend":"mps"},{"uuid":"a","of":2,"number":1}]`,
	} {
		if got, err := ParseReplicas(text); !errors.Is(err, ErrReplicas) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
