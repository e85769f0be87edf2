{{/*
The pod of one process; call with (list . process command). Its own labels are those that policies and selectors use.
*/}}
{{- define "tidemark.pod" -}}
{{- $root := index . 0 }}{{- $process := index . 1 }}{{- $options := $process.options }}{{- $values := $root.Values -}}
metadata:
  annotations:
    checksum/config: {{ list $values.settings $values.definitions | toJson | sha256sum }}
    {{- with $values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
  labels:
    {{- include "tidemark.podLabels" (list $root $process) | nindent 4 }}
spec:
  serviceAccountName: {{ include "tidemark.account" (list $root $process.layer) }}
  automountServiceAccountToken: {{ $options.cluster }}
  enableServiceLinks: false
  {{- if has $process.layer (list "reconcile" "maintenance") }}
  restartPolicy: Never
  {{- end }}
  terminationGracePeriodSeconds: {{ $options.terminationGracePeriodSeconds }}
  securityContext: {{- include "tidemark.podSecurity" $root | nindent 4 }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  containers:
    - name: tidemark
      image: {{ include "tidemark.image" $root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      workingDir: /tidemark
      command: {{ index . 2 | toJson }}
      env: {{- include "tidemark.env" (list $root $process) | nindent 8 }}
      securityContext: {{- include "tidemark.containerSecurity" $root | nindent 8 }}
      resources: {{- toYaml $options.resources | nindent 8 }}
      {{- if has $process.layer (list "archive" "speed") }}
      {{- $probe := dict "exec" (dict "command" (list "tidemark" "status" $process.stream "--layer" $process.layer "--stale-seconds" (toString $values.probes.staleSeconds))) "timeoutSeconds" 30 }}
      startupProbe: {{- merge (dict "periodSeconds" 10 "failureThreshold" 60) $probe | toYaml | nindent 8 }}
      livenessProbe: {{- merge (dict "periodSeconds" $values.probes.periodSeconds "failureThreshold" 5) $probe | toYaml | nindent 8 }}
      {{- end }}
      volumeMounts: {{- include "tidemark.mounts" (list $root $process) | nindent 8 }}
  volumes: {{- include "tidemark.volumes" (list $root $process) | nindent 4 }}
  {{- with $values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "tidemark.podLabels" -}}
{{- $root := index . 0 }}{{- $process := index . 1 -}}
{{- with $root.Values.podLabels }}{{ toYaml . }}
{{ end -}}
{{ include "tidemark.labels" $root }}
app.kubernetes.io/component: {{ $process.layer }}
{{ with $process.stream }}tidemark/stream: {{ . }}
{{ end -}}
tidemark/executors: {{ $process.options.cluster | quote }}
{{- end }}

{{- define "tidemark.env" -}}
{{- $root := index . 0 }}{{- $options := (index . 1).options -}}
- {name: HOME, value: /tmp}
- {name: TIDEMARK_CONFIG, value: /etc/tidemark/settings/tidemark.toml}
{{- if $options.cluster }}
- {name: TIDEMARK_SPARK_MASTER, value: "k8s://https://kubernetes.default.svc:443"}
- {name: SPARK_CONF_DIR, value: /etc/tidemark/spark}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- else }}
- {name: TIDEMARK_SPARK_MASTER, value: "local[{{ $options.cores }}]"}
{{- end }}
{{- range $name, $value := $root.Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{/* What every pod mounts, executors too: settings may name its files. */}}
{{- define "tidemark.sharedMounts" -}}
- {name: scratch, mountPath: /tmp}
{{- if .Values.secrets }}
- {name: secrets, mountPath: /run/secrets/tidemark, readOnly: true}
{{- end }}
{{- if .Values.certificates }}
- {name: certificates, mountPath: /etc/tidemark/certificates, readOnly: true}
{{- end }}
{{- end }}

{{- define "tidemark.mounts" -}}
{{- $root := index . 0 }}{{- $options := (index . 1).options -}}
{{ include "tidemark.sharedMounts" $root }}
- {name: settings, mountPath: /etc/tidemark/settings, readOnly: true}
{{- if $root.Values.definitions }}
- {name: streams, mountPath: /etc/tidemark/streams, readOnly: true}
{{- end }}
{{- if $options.cluster }}
- {name: spark, mountPath: /etc/tidemark/spark, readOnly: true}
{{- if $root.Values.executors.authenticationSecret.secretName }}
{{ include "tidemark.authenticationMount" $root }}
{{- end }}
{{- end }}
{{- end }}

{{/* Call with (list . scratch). 288 is 0440: readers of YAML 1.2 take 0440 for a decimal number. */}}
{{- define "tidemark.sharedVolumes" -}}
{{- $values := (index . 0).Values -}}
- name: scratch
  emptyDir: {sizeLimit: {{ index . 1 }}}
{{- with $values.secrets }}
- name: secrets
  projected:
    defaultMode: 288
    sources:
      {{- range $file, $secret := . }}
      - secret: {name: {{ $secret.secretName }}, items: [{key: {{ $secret.key }}, path: {{ $file }}}]}
      {{- end }}
{{- end }}
{{- with $values.certificates }}
- name: certificates
  projected:
    sources:
      {{- range $file, $map := . }}
      - configMap: {name: {{ $map.configMapName }}, items: [{key: {{ $map.key }}, path: {{ $file }}}]}
      {{- end }}
{{- end }}
{{- end }}

{{- define "tidemark.volumes" -}}
{{- $root := index . 0 }}{{- $options := (index . 1).options }}{{- $name := include "tidemark.fullname" $root -}}
{{ include "tidemark.sharedVolumes" (list $root $options.scratch) }}
- name: settings
  configMap: {name: {{ $name }}-settings}
{{- if $root.Values.definitions }}
- name: streams
  configMap: {name: {{ $name }}-streams}
{{- end }}
{{- if $options.cluster }}
- name: spark
  configMap: {name: {{ $name }}-spark-{{ (index . 1).layer }}}
{{- if $root.Values.executors.authenticationSecret.secretName }}
{{ include "tidemark.authenticationVolume" $root }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidemark.authenticationMount" -}}
- {name: authentication, mountPath: /run/secrets/spark, readOnly: true}
{{- end }}

{{- define "tidemark.authenticationVolume" -}}
{{- with .Values.executors.authenticationSecret -}}
- name: authentication
  secret: {secretName: {{ .secretName }}, defaultMode: 288, items: [{key: {{ .key }}, path: secret}]}
{{- end }}
{{- end }}
