package chart_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/explanation"
	"github.com/divvy-gpu/divvy/test/chart/render"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// TestQueuesAreShown makes the manual's queues at an API server, and follows them as divvy queues --watch does.
func TestQueuesAreShown(t *testing.T) {
	p := newPlane(t, "")
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	reader := explanation.Reader{Objects: client}
	if _, err := reader.Queues(t.Context()); !errors.Is(err, explanation.ErrNoQueues) {
		t.Errorf("before the kind is there: %v", err)
	}
	queues := queuesOf(t, p)
	text, err := os.ReadFile("../../docs/examples/queues.yaml")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := render.Split(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		var object map[string]any
		if err := yaml.Unmarshal(part, &object); err != nil {
			t.Fatal(err)
		}
		if object["kind"] != v1alpha1.KindQueue {
			continue
		}
		if _, err := queues.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	shown, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- reader.FollowQueues(ctx, time.Millisecond, func(err error) { t.Log(err) }, func(all []explanation.Queue) error {
			select {
			case shown <- summary(all):
			case <-ctx.Done():
			}
			return nil
		})
	}()
	expect := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-shown:
				if got == want {
					return
				}
			case err := <-ended:
				t.Fatalf("ended with %v before %q was shown", err, want)
			}
		}
	}
	expect("speech false [] vision false []")
	status := `{"status": {"observedGeneration": 1, "running": 2, "resources": [{"unit": "gpus", "guaranteed": "4", "entitled": "2.5", "used": "2.5", "lent": "1.5", "borrowed": "0", "demand": "2.5"}]}}`
	if _, err := queues.Patch(t.Context(), "vision", "application/merge-patch+json", []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	expect("speech false [] vision true [{ gpus 4000 2500 2500 1500 0 2500}]")
	if err := queues.Delete(t.Context(), "speech", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("vision true [{ gpus 4000 2500 2500 1500 0 2500}]")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// summary is what a test compares of queues.
func summary(all []explanation.Queue) string {
	var texts []string
	for _, q := range all {
		texts = append(texts, fmt.Sprint(q.Name, " ", q.Seen, " ", q.Resources))
	}
	return strings.Join(texts, " ")
}
