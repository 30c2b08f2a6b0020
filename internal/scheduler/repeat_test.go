package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// What was written is taken back also after an API server was away for an hour, and nobody asks it without a pause.
func TestTakeBackAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		back, tries := time.Now().Add(time.Hour), 0
		client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if tries++; time.Now().Before(back) {
				return true, nil, apierrors.NewInternalError(errors.New("away"))
			}
			return false, nil, nil
		})
		w := &Writer{Client: client}
		u := &Unit{Pod: &corev1.Pod{}, written: []written{{claim: &resourcev1.ResourceClaim{}}}}
		if !w.TakeBack(t.Context(), u) || len(u.written) != 0 {
			t.Error("the claims are not taken back")
		}
		if tries < 300 || tries > 370 {
			t.Errorf("%d tries in an hour, want one in 10 to 12 seconds", tries)
		}
	})
}

// A deletion that the API server refuses is repeated, and given up after five minutes.
func TestEndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, begun := fake.NewClientset(), time.Now()
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("away"))
		})
		w := &Writer{Client: client}
		err := w.End(t.Context(), &corev1.Pod{}, "because")
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != endLimit {
			t.Errorf("%v after %v", err, took)
		}
	})
}
