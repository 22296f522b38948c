// A Go client as most operators have it: controller-runtime's default client, which speaks protobuf for built-in kinds.
// It creates, patches, lists and watches pods and a custom resource, and prints one line per step; any surprise is fatal.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func check(step string, err error) {
	if err != nil {
		fmt.Printf("FAILED %s: %v\n", step, err)
		os.Exit(1)
	}
	fmt.Println("ok", step)
}

func expect(step string, condition bool, found any) {
	if !condition {
		check(step, fmt.Errorf("found %v", found))
	}
	fmt.Println("ok", step)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check("read the kubeconfig", err)
	scheme := runtime.NewScheme()
	check("register the kinds", clientgoscheme.AddToScheme(scheme))
	check("register definitions", apiextensionsv1.AddToScheme(scheme))
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	check("make a client", err)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "go-client-"}}
	check("create a namespace", c.Create(ctx, namespace))
	in := client.InNamespace(namespace.Name)
	// The real server refuses pods until the namespace has its default service account.
	check("wait for the service account", wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	}))

	events, err := c.Watch(ctx, &corev1.PodList{}, in)
	check("watch pods", err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "trainer", Labels: map[string]string{"app": "trainer"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: "example/trainer:1",
				Env:       []corev1.EnvVar{{Name: "MODE", Value: "full"}},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi")}},
			}},
			TerminationGracePeriodSeconds: ptr.To[int64](7),
			Tolerations:                   []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		},
	}
	check("create a pod", c.Create(ctx, pod))
	expect("the pod has a uid and defaults", pod.UID != "" && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways && *pod.Spec.TerminationGracePeriodSeconds == 7, pod.Spec)
	next := func(kind watch.EventType) *corev1.Pod {
		for {
			select {
			case event := <-events.ResultChan():
				if seen, ok := event.Object.(*corev1.Pod); ok && event.Type == kind {
					return seen
				}
			case <-ctx.Done():
				check(fmt.Sprintf("see %s", kind), ctx.Err())
			}
		}
	}
	expect("the watch shows the new pod", next(watch.Added).UID == pod.UID, "another pod")

	before := pod.DeepCopy()
	pod.Labels["team"] = "a"
	check("patch the pod (merge)", c.Patch(ctx, pod, client.MergeFrom(before)))
	before = pod.DeepCopy()
	pod.Spec.Containers[0].Image = "example/trainer:2"
	check("patch the pod (strategic)", c.Patch(ctx, pod, client.StrategicMergeFrom(before)))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	check("update the pod's status", c.Status().Update(ctx, pod))
	expect("the watch shows a change", next(watch.Modified).Labels["team"] == "a", "no label")

	stale := before.DeepCopy()
	stale.Labels["team"] = "b"
	err = c.Update(ctx, stale)
	expect("an update with an old version conflicts", apierrors.IsConflict(err), err)

	pods := &corev1.PodList{}
	check("list pods by label", c.List(ctx, pods, in, client.MatchingLabels{"team": "a"}))
	expect("one pod is listed, with its quantities", len(pods.Items) == 1 && pods.Items[0].Spec.Containers[0].Resources.Limits.Memory().Value() == 2<<30, pods.Items)

	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example/web:1"}}},
			},
		},
	}
	check("create a deployment", c.Create(ctx, deployment))
	expect("zero replicas stay zero", *deployment.Spec.Replicas == 0, *deployment.Spec.Replicas)
	check("evict the pod", c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}))
	expect("the watch shows the deletion", next(watch.Deleted).UID == pod.UID, "another pod")
	err = c.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{})
	expect("the pod is gone", apierrors.IsNotFound(err), err)

	plural := fmt.Sprintf("gadgets%d", time.Now().UnixNano()%1_000_000)
	group := "go-client.example.com"
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural, Kind: "Gadget" + plural, ListKind: "Gadget" + plural + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"size": {Type: "integer", Minimum: ptr.To(1.0), Default: &apiextensionsv1.JSON{Raw: []byte("3")}},
						}},
						"status": {Type: "object", XPreserveUnknownFields: ptr.To(true)},
					},
				}},
			}},
		},
	}
	check("create a definition", c.Create(ctx, definition))
	check("wait until it is established", wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return false, err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	}))
	kind := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gadget" + plural}
	gadget := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	gadget.SetGroupVersionKind(kind)
	gadget.SetNamespace(namespace.Name)
	gadget.SetName("one")
	check("create a custom object", wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Create(ctx, gadget)
		return err == nil, client.IgnoreNotFound(err)
	}))
	size, _, _ := unstructured.NestedInt64(gadget.Object, "spec", "size")
	expect("the default is there", size == 3, gadget.Object)
	copied := gadget.DeepCopy()
	check("set a size", unstructured.SetNestedField(gadget.Object, int64(5), "spec", "size"))
	check("patch the custom object", c.Patch(ctx, gadget, client.MergeFrom(copied)))
	check("set a status", unstructured.SetNestedField(gadget.Object, "fine", "status", "state"))
	check("update its status", c.Status().Update(ctx, gadget))
	bad := gadget.DeepCopy()
	check("set a bad size", unstructured.SetNestedField(bad.Object, int64(0), "spec", "size"))
	err = c.Update(ctx, bad)
	expect("a bad value is refused", apierrors.IsInvalid(err), err)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gadget" + plural + "List"})
	check("list custom objects", c.List(ctx, list, in))
	expect("one custom object is listed", len(list.Items) == 1, list.Items)
	gadgets, err := c.Watch(ctx, list, in)
	check("watch custom objects", err)
	check("delete the custom object", c.Delete(ctx, gadget))
	for event := range gadgets.ResultChan() {
		if event.Type == watch.Deleted {
			break
		}
	}
	fmt.Println("ok the watch shows its deletion")
	check("delete the definition", c.Delete(ctx, definition))
	check("delete everything of a kind", c.DeleteAllOf(ctx, &appsv1.Deployment{}, in))
	check("delete the namespace", c.Delete(ctx, namespace))
	fmt.Println("done")
}
