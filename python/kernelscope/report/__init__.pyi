from kernelscope.report.conversion import convert as convert
from kernelscope.report.rendering import FORMATS as FORMATS
from kernelscope.report.rendering import page_views as page_views
from kernelscope.report.rendering import render as render
from kernelscope.report.views import required_tables as required_tables
