{{/* The pod of both: name, command, probe, environment, cache and resources are given. */}}
{{- define "headcount.pod" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: {{ .name }}
    image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: {{- toYaml (concat (list .name "--host" "0.0.0.0" "--port" (toString .values.port)) .values.args) | nindent 6 }}
    env:
      - name: {{ .variable }}
        valueFrom: {secretKeyRef: {name: {{ .root.Values.secret }}, key: {{ .key }}}}
    ports:
      - {name: http, containerPort: {{ .values.port }}}
    startupProbe: # an endpoint of a rarer fleet compiles its kernels first
      {{- toYaml .probe | nindent 6 }}
      periodSeconds: 2
      failureThreshold: 90
    readinessProbe: {{- toYaml .probe | nindent 6 }}
    resources: {{- toYaml .values.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: cache, mountPath: /cache}
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: cache
    {{- if .values.cache }}
    persistentVolumeClaim: {claimName: {{ .values.cache }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  - name: tmp
    emptyDir: {}
{{- end }}

{{/* A deployment of one replica, since answers and prefix caches are each pod's own, and its service. */}}
{{- define "headcount.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: &labels
    app.kubernetes.io/name: headcount
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/component: {{ .name }}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector:
    matchLabels: *labels
  template:
    metadata:
      labels: *labels
    spec: {{- include "headcount.pod" . | nindent 6 }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: &labels
    app.kubernetes.io/name: headcount
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/component: {{ .name }}
spec:
  selector: *labels
  ports:
    - {name: http, port: {{ .values.port }}, targetPort: http}
{{- end }}
