//go:build programs

// Package programs pins the programs of a real Kubernetes cluster, so that go.mod and go.sum fix every version.
// The build tag keeps this file out of every build: it only tells `go mod tidy` what is needed.
package programs

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubelet"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
