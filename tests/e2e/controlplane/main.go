// Package main is a whole Kubernetes control plane in one executable: the first argument says which
// part it is. The parts are the upstream commands; sharing one executable means that the packages they
// have in common are compiled and linked once. The scheduler alone knows one plugin more, which runs
// where a profile asks for it.
package main

import (
	"fmt"
	"io"
	"os"
	_ "time/tzdata" // a CronJob may name a time zone, and a test machine may have none

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// schedulerOptions name the plugins that the scheduler knows beside its own.
var schedulerOptions []scheduler.Option

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: controlplane PART [FLAG...]")
		os.Exit(2)
	}
	go endWithParent()
	part := os.Args[1]
	os.Args = os.Args[1:] // the upstream commands read their flags from here
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand(schedulerOptions...))
	default:
		fmt.Fprintf(os.Stderr, "unknown part `%s`\n", part)
		os.Exit(2)
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

// endWithParent ends this process when its standard input does: a test run that was killed leaves
// nothing behind.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}
