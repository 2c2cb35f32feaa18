// Command kube-router enforces NetworkPolicy on one node, with the controller of kube-router that does so and no other: what
// the whole kube-router is compiled from beside it speaks BGP and drives IPVS. It takes the arguments of the whole.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func run() error {
	klog.InitFlags(nil)
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	if err := flag.Set("v", config.VLevel); err != nil {
		return err
	}

	access, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	all := informers.NewSharedInformerFactory(client, 0)
	pods := all.Core().V1().Pods().Informer()
	namespaces := all.Core().V1().Namespaces().Informer()
	policies := all.Networking().V1().NetworkPolicies().Informer()
	all.Start(stop)
	all.WaitForCacheSync(stop)

	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	var failed []error
	listen := func(to cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		_, err := to.AddEventHandler(handler)
		failed = append(failed, err)
	}
	listen(pods, controller.PodEventHandler)
	listen(namespaces, controller.NamespaceEventHandler)
	listen(policies, controller.NetworkPolicyEventHandler)
	if err := errors.Join(failed...); err != nil {
		return err
	}

	// The controller waits until somebody has taken its heartbeat.
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(beats, stop, &running)

	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	<-asked
	close(stop)
	running.Wait()
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kube-router:", err)
		os.Exit(1)
	}
}
