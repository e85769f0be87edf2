// Renders a chart as "helm template" does, with Helm's own engine, and without what Helm needs for clusters.
//
// usage: render CHART NOTES|DOCUMENTS VALUES.yaml...
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

func main() {
	if err := render(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(folder, wanted string, files []string) error {
	chart, err := loader.Load(folder)
	if err != nil {
		return err
	}
	values := map[string]any{}
	for _, file := range files { // a later file's values replace those of an earlier one
		read, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return err
		}
		values = chartutil.MergeTables(read, values)
	}
	release := chartutil.ReleaseOptions{Name: "prod", Namespace: "data", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	texts, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(texts))
	for name := range texts {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if strings.HasSuffix(name, "NOTES.txt") {
			if wanted == "NOTES" {
				fmt.Print(texts[name])
			}
		} else if wanted == "DOCUMENTS" {
			documents := releaseutil.SplitManifests(texts[name])
			keys := make([]string, 0, len(documents))
			for key := range documents {
				keys = append(keys, key)
			}
			sort.Sort(releaseutil.BySplitManifestsOrder(keys))
			for _, key := range keys {
				fmt.Printf("---\n%s\n", strings.TrimSpace(documents[key]))
			}
		}
	}
	return nil
}
