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

func TestInvalidReplicas(t *testing.T) {
	for _, text := range []string{
		"", "[]", "{}", `[{"of":2}]`, `[{"uuid":"a","of":-1}]`, `[{"uuid":"a","of":65}]`, `[{"uuid":"a","of":2,"number":2}]`,
		`[{"uuid":"a","number":1}]`, `[{"uuid":"a"},{"uuid":"a"}]`, `[{"uuid":"a","of":2},{"uuid":"a","of":3,"number":1}]`,
		`[{"uuid":"a","of":2,"backend":"mps"},{"uuid":"a","of":2,"number":1}]`,
	} {
		if got, err := ParseReplicas(text); !errors.Is(err, ErrReplicas) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
