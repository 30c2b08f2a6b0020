package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/doctor/bundle"
	"github.com/divvy-gpu/divvy/internal/redaction"
)

// Bounds of what a bundle has of a cluster.
const (
	mostPods  = 60
	mostLines = 2000
	mostList  = 500
	// mostBytes bounds an answer of the API server with a log.
	mostBytes = bundle.Most
)

// Items are what a bundle has of a cluster: Divvy's own objects and logs, nodes' slices, and events. Secrets are never read.
func (c Cluster) Items(ctx context.Context) ([]bundle.Item, error) {
	some := metav1.ListOptions{Limit: mostList}
	items := []bundle.Item{
		object("cluster/version.json", func(context.Context) (any, error) { return c.Client.Discovery().ServerVersion() }),
		object("cluster/deployments.json", func(ctx context.Context) (any, error) {
			list, err := c.Client.AppsV1().Deployments(c.Namespace).List(ctx, some)
			for i := range list.Items {
				bare(&list.Items[i].ObjectMeta, &list.Items[i].Spec.Template.Spec)
			}
			return list, err
		}),
		object("cluster/daemonsets.json", func(ctx context.Context) (any, error) {
			list, err := c.Client.AppsV1().DaemonSets(c.Namespace).List(ctx, some)
			for i := range list.Items {
				bare(&list.Items[i].ObjectMeta, &list.Items[i].Spec.Template.Spec)
			}
			return list, err
		}),
		object("cluster/events.json", func(ctx context.Context) (any, error) {
			return c.Client.CoreV1().Events(c.Namespace).List(ctx, some)
		}),
		object("cluster/leases.json", func(ctx context.Context) (any, error) {
			return c.Client.CoordinationV1().Leases(c.Namespace).List(ctx, some)
		}),
		object("cluster/slices.json", func(ctx context.Context) (any, error) {
			return c.Client.ResourceV1().ResourceSlices().List(ctx, some)
		}),
		object("cluster/deviceclasses.json", func(ctx context.Context) (any, error) {
			return c.Client.ResourceV1().DeviceClasses().List(ctx, some)
		}),
	}
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{Limit: mostPods})
	if err != nil {
		return items, fmt.Errorf("list the pods of %s: %w", c.Namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		bare(&pod.ObjectMeta, &pod.Spec)
		items = append(items, object(path.Join("cluster/pods", pod.Name+".json"), func(context.Context) (any, error) { return pod, nil }))
		for j := range pod.Spec.Containers {
			items = append(items, c.logOf(pod.Name, pod.Spec.Containers[j].Name))
		}
	}
	return items, nil
}

// logOf is the end of a container's log.
func (c Cluster) logOf(pod, container string) bundle.Item {
	return bundle.Item{Name: path.Join("cluster/logs", pod, container+".log"), Read: func(ctx context.Context) (text []byte, err error) {
		lines, bytes := int64(mostLines), int64(mostBytes)
		stream, err := c.Client.CoreV1().Pods(c.Namespace).GetLogs(pod, &corev1.PodLogOptions{
			Container: container, TailLines: &lines, LimitBytes: &bytes, Timestamps: true,
		}).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		defer func() { err = errors.Join(err, stream.Close()) }()
		return io.ReadAll(io.LimitReader(stream, mostBytes))
	}}
}

// object is an item of an answer of the API server as JSON.
func object(name string, read func(context.Context) (any, error)) bundle.Item {
	return bundle.Item{Name: name, Read: func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, bundle.Time-time.Second)
		defer cancel()
		answer, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(answer, "", " ")
	}}
}

// bare takes out of an object what may be a secret or says nothing: values of variables, arguments that look like secrets, and
// what tools keep of the object.
func bare(meta *metav1.ObjectMeta, pod *corev1.PodSpec) {
	meta.ManagedFields = nil
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			one := &containers[i]
			one.Args, one.Command = redaction.Arguments(one.Args), redaction.Arguments(one.Command)
			for j := range one.Env {
				env := &one.Env[j]
				known := slices.Contains(redaction.Environment([]string{env.Name + "=" + env.Value}), env.Name+"="+env.Value)
				if env.Value != "" && !known {
					env.Value = redaction.Mark
				}
			}
		}
	}
}
