//go:build !kubernetes1.34

package main

import (
	"context"
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// measuredLoadName is what a profile of the scheduler calls the plugin; none has it by default.
const measuredLoadName = "MeasuredLoad"

// measuredLoad is LoadAware's formula in the scheduler itself, for benchmarks to compare with: it
// keeps pods off nodes whose CPU usage, measured and expected, is above a threshold, and prefers
// the least used. Source: Koordinator, pkg/scheduler/plugins/loadaware.
type measuredLoad struct {
	// Nodes has what was measured of each node; one that is missing is not judged.
	Nodes map[string]measuredNode `json:"nodes"`
	// ThresholdPercent is of a node's allocatable; equal passes.
	ThresholdPercent float64 `json:"thresholdPercent"`
	// ExpectedPercent is what a pod is expected to use of its request.
	ExpectedPercent float64 `json:"expectedPercent"`
}

// measuredNode is what was known of a node at the time of its measurement, in millicores.
type measuredNode struct {
	Used      int64 `json:"used"`
	Requested int64 `json:"requested"`
}

var (
	_ fwk.FilterPlugin = (*measuredLoad)(nil)
	_ fwk.ScorePlugin  = (*measuredLoad)(nil)
)

// The plugins of 1.34 implement other interfaces, and no benchmark runs there.
func init() {
	schedulerOptions = append(schedulerOptions, scheduler.WithPlugin(measuredLoadName, newMeasuredLoad))
}

func newMeasuredLoad(_ context.Context, args runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	plugin := &measuredLoad{}
	if err := frameworkruntime.DecodeInto(args, plugin); err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", measuredLoadName, err)
	}
	return plugin, nil
}

// Name implements fwk.Plugin.
func (*measuredLoad) Name() string { return measuredLoadName }

// Filter implements fwk.FilterPlugin.
func (p *measuredLoad) Filter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	load, total := p.load(pod, node)
	if math.Round(load/total*100) > p.ThresholdPercent {
		return fwk.NewStatus(fwk.Unschedulable, "node(s) cpu usage exceed threshold")
	}
	return nil
}

// Score implements fwk.ScorePlugin.
func (p *measuredLoad) Score(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	load, total := p.load(pod, node)
	return int64(max(total-load, 0) / total * float64(fwk.MaxNodeScore)), nil
}

// ScoreExtensions implements fwk.ScorePlugin: scores are not normalized.
func (*measuredLoad) ScoreExtensions() fwk.ScoreExtensions { return nil }

// load returns the millicores that a node would use with a pod, and those that it has.
func (p *measuredLoad) load(pod *v1.Pod, node fwk.NodeInfo) (load, total float64) {
	total = float64(max(node.GetAllocatable().GetMilliCPU(), 1))
	measured, ok := p.Nodes[node.Node().Name]
	if !ok {
		return 0, total
	}
	since := node.GetRequested().GetMilliCPU() - measured.Requested
	for i := range pod.Spec.Containers {
		since += pod.Spec.Containers[i].Resources.Requests.Cpu().MilliValue()
	}
	return float64(measured.Used) + float64(since)*p.ExpectedPercent/100, total
}
