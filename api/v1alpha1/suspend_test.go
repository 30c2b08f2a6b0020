package v1alpha1

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSuspension(t *testing.T) {
	for _, s := range []Suspension{{Order: 1, For: "vision/train-0", Queue: "vision"}, {Order: 7, For: "a/b"}} {
		text, err := s.Text()
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParseSuspension(text)
		s.Version = 1
		if err != nil || read != s {
			t.Errorf("%s was read as %+v, %v; want %+v", text, read, err, s)
		}
	}
	const whole = `{"version":1,"order":2,"for":"vision/train-0","queue":"vision"}`
	read, err := ParseSuspension(whole)
	if err != nil || read.Whom() != "pod vision/train-0 of queue vision" {
		t.Errorf("%s is for %q, %v", whole, read.Whom(), err)
	}
	read.Queue = ""
	if text, err := read.Text(); err != nil || text != `{"version":1,"order":2,"for":"vision/train-0"}` || read.Whom() != "pod vision/train-0" {
		t.Errorf("written as %s, %v, for %q", text, err, read.Whom())
	}
}

func TestSuspensionRefused(t *testing.T) {
	for _, text := range []string{
		"", "null", "{}", "[]", `"vision/train-0"`,
		`{"version":2,"order":1,"for":"a/b"}`,
		`{"version":1,"for":"a/b"}`,
		`{"version":1,"order":0,"for":"a/b"}`,
		`{"version":1,"order":-1,"for":"a/b"}`,
		`{"version":1,"order":1.5,"for":"a/b"}`,
		`{"version":1,"order":1}`,
		`{"version":1,"order":1,"for":"b"}`,
		`{"version":1,"order":1,"for":"/b"}`,
		`{"version":1,"order":1,"for":"a/"}`,
		`{"version":1,"order":1,"for":"a/b/c"}`,
		`{"version":1,"order":1,"for":"a/b","hold":true}`,
		`{"version":1,"order":1,"for":"a/b","for":"a/c"}`,
		`{"version":1,"order":1,"For":"a/b"}`,
		`{"version":1,"order":1,"for":"a/b"} {}`,
		`{"version":1,"order":1,"for":"a/b","queue":"` + strings.Repeat("q", 254) + `"}`,
	} {
		if read, err := ParseSuspension(text); !errors.Is(err, ErrAnnotation) || read != (Suspension{}) {
			t.Errorf("%s was read as %+v, %v", text, read, err)
		}
	}
	if text, err := (Suspension{For: "a/b"}).Text(); !errors.Is(err, ErrAnnotation) {
		t.Errorf("an order of 0 was written as %s, %v", text, err)
	}
}

func TestSuspensionAnswer(t *testing.T) {
	yes, no := SuspensionAnswer(3, SuspendedReason, "m", metav1.Now()), SuspensionAnswer(3, RefusedReason, "m", metav1.Now())
	if yes.Status != metav1.ConditionTrue || no.Status != metav1.ConditionFalse || yes.ObservedGeneration != 3 || no.Reason != RefusedReason {
		t.Errorf("answers are %+v and %+v", yes, no)
	}
	device := resourcev1.AllocatedDeviceStatus{Driver: Driver, Conditions: []metav1.Condition{{Type: "Ready"}, yes}}
	if got := SuspensionAnswerOf(&device); got == nil || *got != yes {
		t.Errorf("the answer of %+v is %+v", device, got)
	}
	device.Driver = NVIDIADriver
	if got := SuspensionAnswerOf(&device); got != nil {
		t.Errorf("the answer of another driver's device is %+v", got)
	}
}

func FuzzParseSuspension(f *testing.F) {
	f.Add(`{"version":1,"order":2,"for":"vision/train-0","queue":"vision"}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSuspension(text)
		if err != nil {
			return
		}
		again, err := s.Text()
		if err != nil {
			t.Fatalf("%q was read as %+v, which cannot be written: %v", text, s, err)
		}
		if back, err := ParseSuspension(again); err != nil || back != s {
			t.Fatalf("%+v was written as %s and read as %+v, %v", s, again, back, err)
		}
	})
}
