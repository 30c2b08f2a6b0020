package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// page bounds what one request lists.
const page = 500

// ClaimsInUse returns a line for each claim that has GPUs of Divvy's. Its pods cannot end properly without the agent,
// so Divvy must not be removed before them.
func ClaimsInUse(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	var lines []string
	options := metav1.ListOptions{Limit: page}
	for {
		claims, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the claims: %w", err)
		}
		for i := range claims.Items {
			claim := &claims.Items[i]
			if claim.Status.Allocation == nil {
				continue
			}
			gpus := 0
			for _, result := range claim.Status.Allocation.Devices.Results {
				if result.Driver == v1alpha1.Driver {
					gpus++
				}
			}
			if gpus == 0 {
				continue
			}
			var users []string
			for _, user := range claim.Status.ReservedFor {
				users = append(users, user.Resource+"/"+user.Name)
			}
			by := "nobody now"
			if len(users) > 0 {
				by = strings.Join(users, ", ")
			}
			lines = append(lines, fmt.Sprintf("claim %s/%s holds %s, used by %s", claim.Namespace, claim.Name, plural(gpus, "GPU"), by))
		}
		if options.Continue = claims.Continue; options.Continue == "" {
			return lines, nil
		}
	}
}

// SlotsInUse returns a line for each pod that is not finished and holds counted slots, or devices for virtual machines.
func SlotsInUse(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	var lines []string
	options := metav1.ListOptions{Limit: page, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	for {
		pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the pods: %w", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if held := heldSlots(pod); held != "" {
				lines = append(lines, fmt.Sprintf("pod %s/%s holds %s on node %s", pod.Namespace, pod.Name, held, pod.Spec.NodeName))
			}
		}
		if options.Continue = pods.Continue; options.Continue == "" {
			return lines, nil
		}
	}
}

// heldSlots says what a pod holds that is counted, "" for nothing.
func heldSlots(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return ""
	}
	var held []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name, count := range list[i].Resources.Limits {
				what := "shares"
				if isMachines(name) {
					what = string(name)
				}
				if (name == v1alpha1.SlotResource || isMachines(name)) && !count.IsZero() && !slices.Contains(held, what) {
					held = append(held, what)
				}
			}
		}
	}
	slices.Sort(held)
	return strings.Join(held, ", ")
}

// isMachines tells whether a resource counts devices for virtual machines, such as divvy.dev/vgpu_471.
func isMachines(name corev1.ResourceName) bool {
	form, _, kind := strings.Cut(strings.TrimPrefix(string(name), v1alpha1.Domain+"/"), "_")
	return kind && strings.HasPrefix(string(name), v1alpha1.Domain+"/") && v1alpha1.Backend(form).ForMachines()
}
